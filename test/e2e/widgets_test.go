package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeslot/kubeslot/types/assignment"
)

// installPlugins has the scheduler and node A's kubecri run both halves of the example plugin
// and of one that was written for KubeDevice, until the test ends.
func (r *rig) installPlugins() {
	r.Helper()
	root := shared.Config().RepoRoot
	var halves []string
	for _, plugin := range []string{"plugins/example", "kubedevice-api/testdata/oldplugin"} {
		halves = append(halves, filepath.Join(root, plugin, "scheduler"), filepath.Join(root, plugin, "device"))
	}
	files, err := shared.LoadPlugins(r.ctx, []string{nodeA}, halves...)
	r.Cleanup(func() {
		for _, file := range files {
			os.Remove(file)
		}
		r.check(shared.Restart("kube-scheduler", ""))
		r.check(shared.Restart("kubecri", nodeA))
	})
	r.check(err)
}

// widgets are those that the pod's container was told of; all must be of one board.
func (r *rig) widgets(pod string, n int) []string {
	r.Helper()
	r.awaitRunning(pod)
	got := strings.Split(r.env(pod)["WIDGETS"], ",")
	for _, w := range got {
		if len(got) != n || w == "" || w[0] != got[0][0] {
			r.Errorf("pod %s got widgets %q, want %d of one board", pod, got, n)
		}
	}
	return got
}

// The whole way of a plugin: what its device half says of the node, its scheduler
// half places, and its device half puts into the container; beside slots, in one
// Binding.
func TestDevicePluginOfTwoHalves(t *testing.T) {
	testAll(t, "builds plugins, and restarts what loads them")
	r := newRig(t)
	r.debugEcho("wcam", 1, nil, "wcam0")
	r.installPlugins()
	r.await("the node to have two boards of two widgets", func() (bool, string) {
		n, err := kube.CoreV1().Nodes().Get(r.ctx, nodeA, metav1.GetOptions{})
		r.check(err)
		info, err := assignment.DecodeNode(n.Annotations)
		r.check(err)
		q := n.Status.Allocatable["example.com/widget"]
		return q.Value() == 4 && info.Allocatable["resource/group/board/1/widget/3/cards"] == 1, fmt.Sprint(q.String(), n.Annotations)
	})

	asking := func(name string, n int, slots map[string]int64) *v1.Pod {
		p := newPod(name, "", slots)
		p.Annotations[assignment.Annotation] = fmt.Sprintf(`{"runningcontainer":{"main":{"requests":{"example.com/widget":%d}}}}`, n)
		return p
	}
	r.create(asking("annotated", 2, map[string]int64{"wcam": 1}))
	first := r.widgets("annotated", 2)
	if r.env("annotated")["AKRI_DEVICES"] == "" || len(r.claims("wcam")) != 1 {
		t.Errorf("no slot beside the widgets: %v", r.claims("wcam"))
	}
	info, err := assignment.Granted(r.pod("annotated").Annotations, string(r.pod("annotated").UID), nodeA)
	r.check(err)
	if from := info.RunningContainers["main"].AllocateFrom; len(from) != 3 {
		t.Errorf("assignment %v, want a slot and two widgets", from)
	}

	r.create(asking("too-many", 3, nil)) // no board has them
	r.awaitPending("too-many")
	spec := newPod("spec", "", nil)
	spec.Spec.Containers[0].Resources.Limits = v1.ResourceList{"example.com/widget": resource.MustParse("2")}
	r.create(spec)
	if second := r.widgets("spec", 2); slices.Contains(first, second[0]) {
		t.Errorf("widgets are given twice: %v and %v", first, second)
	}
	r.create(asking("waits", 1, nil))
	r.awaitPending("waits")
	r.delete("spec")
	r.widgets("waits", 1)
	r.fromKubeDevice()
}
