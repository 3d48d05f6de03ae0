package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeslot/kubeslot/types/assignment"
)

// What an annotation requests and nobody serves keeps the pod from being bound.
func TestRequestsThatNoPluginAnswersFor(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := newPod("unserved", "", nil)
	p.Annotations[assignment.Annotation] = `{"runningcontainer":{"main":{"requests":{"example.com/gadget":1}}}}`
	r.create(p)
	r.awaitPending("unserved", `1 of "example.com/gadget" for container "main"`, "device scheduler plugin")
	// Corrected, it runs.
	_, err := kube.CoreV1().Pods(r.ns).Patch(r.ctx, "unserved", types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"KubeDevice/DeviceInfo":null}}}`), metav1.PatchOptions{})
	r.check(err)
	r.awaitRunning("unserved")
	r.delete("unserved")
}

// A scheduler with a plugin that cannot be loaded does not start, or starts without
// it, and says so where one looks: in its log, in an event, and to `plugin check`.
func TestBadSchedulerPlugins(t *testing.T) {
	testAll(t, "starts other schedulers")
	r := newRig(t)
	dir := t.TempDir()
	r.check(os.Chmod(dir, 0o755))
	bad := filepath.Join(dir, "10-text.so")
	r.check(os.WriteFile(bad, []byte("not a plugin\n"), 0o600))

	out, err := exec.CommandContext(r.ctx, filepath.Join(shared.BinDir(), "kube-scheduler"), "plugin", "check", dir).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "not-a-plugin: it is not a shared object") {
		t.Errorf("plugin check: %v\n%s", err, out)
	}

	const refuses, skips = "kube-scheduler-refuses", "kube-scheduler-skips"
	ctx, cancel := context.WithTimeout(r.ctx, patience)
	defer cancel()
	if err := shared.StartScheduler(ctx, refuses, 10301, "--devschedpath="+dir); err == nil {
		t.Error("it serves with a bad plugin")
	}
	r.check(shared.RemoveScheduler(refuses))
	log, err := os.ReadFile(shared.LogPath(refuses, ""))
	r.check(err)
	for _, want := range []string{bad + " is not a shared object", "make plugin-builder", "--devsched-bad-plugins=skip"} {
		if !strings.Contains(string(log), want) {
			t.Errorf("its log lacks %q:\n%s", want, log)
		}
	}
	first := r.awaitBadPluginEvent(bad, metav1.Time{})

	r.check(shared.StartScheduler(r.ctx, skips, 10302, "--devschedpath="+dir, "--devsched-bad-plugins=skip"))
	r.check(shared.RemoveScheduler(skips))
	// The same event once more, and not another.
	r.awaitBadPluginEvent(bad, first)
	log, err = os.ReadFile(shared.LogPath(skips, ""))
	r.check(err)
	if strings.Contains(string(log), "Cannot record an event") {
		t.Errorf("it may not record the event again:\n%s", log)
	}
}

// awaitBadPluginEvent waits for the one event about the file, told after the time.
func (r *rig) awaitBadPluginEvent(file string, after metav1.Time) (last metav1.Time) {
	r.Helper()
	r.await("one event about "+file, func() (bool, string) {
		events, err := kube.CoreV1().Events(metav1.NamespaceSystem).List(r.ctx, metav1.ListOptions{FieldSelector: "reason=BadDevicePlugin"})
		r.check(err)
		var about []v1.Event
		for _, e := range events.Items {
			if strings.Contains(e.Message, file) {
				about = append(about, e)
			}
		}
		if len(about) != 1 {
			return false, strings.Repeat("event ", len(about))
		}
		last = about[0].LastTimestamp
		return after.IsZero() || !last.Before(&after), last.String()
	})
	return last
}
