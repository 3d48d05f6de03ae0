package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/kubeslot/kubeslot/test/cluster"
	"github.com/kubeslot/kubeslot/test/docs"
	"github.com/kubeslot/kubeslot/types/assignment"
)

// typed are the words of the command of a page that begins so, without the program.
func (r *rig) typed(page, begin string) []string {
	r.Helper()
	command, err := docs.Command(shared.Config().RepoRoot, page, begin)
	r.check(err)
	return strings.Fields(strings.ReplaceAll(command, "'", ""))[1:]
}

// fromKubeDevice takes the steps of docs/migrate-from-kubedevice.md that follow when a plugin
// written for KubeDevice is in its place: kubedevice-api/testdata/oldplugin, on node A.
func (r *rig) fromKubeDevice() {
	r.Helper()
	for program, check := range map[string]struct {
		args []string
		dir  string
	}{
		cluster.Scheduler: {r.typed("docs/migrate-from-kubedevice.md", "kube-scheduler plugin check"), shared.SchedulerPluginDir()},
		cluster.Kubecri:   {r.typed("docs/migrate-from-kubedevice.md", "kubecri plugin check"), theNode().DevicePluginDir},
	} {
		args := append(check.args[:len(check.args)-1:len(check.args)-1], check.dir)
		out, err := exec.CommandContext(r.ctx, filepath.Join(shared.BinDir(), program), args...).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "oldplugin.so") {
			r.Errorf("%s %q: %v\n%s", program, args, err, out)
		}
	}
	r.await("the node to say what the plugin found", func() (bool, string) {
		out, err := shared.Kubectl(r.ctx, r.typed("docs/migrate-from-kubedevice.md", "kubectl get node node-a")...)
		return strings.Contains(out, `"resource/group/hub/0/port/1/seats":1`), fmt.Sprint(out, err)
	})

	apply := r.typed("docs/migrate-from-kubedevice.md", "kubectl apply")
	file := r.example(apply[len(apply)-1])
	_, err := shared.Kubectl(r.ctx, append(apply[:len(apply)-1], file, "-n", r.ns)...)
	r.check(err)
	p := r.awaitRunning("licensed")
	if ports := r.env("licensed")["DONGLE_PORTS"]; ports != "0,1" && ports != "1,0" {
		r.Errorf("the container has the ports %q", ports)
	}
	annotation, err := shared.Kubectl(r.ctx, append(r.typed("docs/migrate-from-kubedevice.md", "kubectl get pod licensed"), "-n", r.ns)...)
	r.check(err)
	if annotation != p.Annotations[assignment.Annotation] || strings.Contains(annotation, "old-node") || strings.Contains(annotation, "hub/7") {
		r.Errorf("the annotation says\n%s\nwant nothing of the cluster with KubeDevice", annotation)
	}
}
