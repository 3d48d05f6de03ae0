package hostinstall

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeslot/kubeslot/deploy/images"
	"github.com/kubeslot/kubeslot/test/cluster"
)

// staticPod has the kubelet run our scheduler's image as the static pod that kubeadm
// writes with our patch, in the place of the cluster's scheduler. It returns what ends
// it.
func (h *host) staticPod(t *testing.T) (end func()) {
	const name = "kube-scheduler"
	r := newKubeadmRoot(t)
	r.write("/patched.yaml", strings.Replace(initFile, "---", "patches: {directory: /etc/kubernetes/patches}\n---", 1)+clusterFile)
	r.kubeadm("init", "phase", "control-plane", "scheduler", "--config", "/patched.yaml")
	reference := r.scheduler().Spec.Containers[0].Image

	all := images.Components()
	component := all[slices.IndexFunc(all, func(c images.Component) bool { return c.Name == name })]
	source := images.Source{
		Root: h.cluster.Config().RepoRoot, Version: "v1.2.3", Revision: "test", Architectures: []string{runtime.GOARCH},
		LDFlags: "-X k8s.io/component-base/version.gitVersion=v1.37.2" +
			" -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=37",
	}
	index, err := images.Build(h.ctx, source, component, t.TempDir())
	h.check(err)
	archive := filepath.Join(h.work, "kube-scheduler.tar")
	h.check(images.WriteArchive(archive, reference, index))
	out, err := h.run(filepath.Join(h.cluster.BinDir(), "ctr"), "--address="+h.node.ContainerdSocket, "--namespace=k8s.io", "images", "import", archive)
	if err != nil {
		t.Fatalf("ctr images import: %v\n%s", err, out)
	}
	kubeconfig, err := os.ReadFile(h.cluster.ComponentKubeconfig(cluster.Scheduler, ""))
	h.check(err)
	conf := fmt.Sprintf("/proc/%d/root/etc/kubernetes/scheduler.conf", h.pid)
	h.write(conf, string(kubeconfig))
	h.check(os.Chmod(conf, 0o600)) // as kubeadm has it

	h.check(h.cluster.Kill(cluster.Scheduler, "", syscall.SIGKILL))
	manifest := filepath.Join(h.node.StaticPodDir, filepath.Base(schedulerPod))
	h.write(manifest, r.read(schedulerPod))
	h.await("the static pod to be Ready", func() (bool, string) {
		pod, err := h.kube.CoreV1().Pods(metav1.NamespaceSystem).Get(h.ctx, name+"-"+node, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodReady {
				return c.Status == corev1.ConditionTrue, fmt.Sprint(pod.Status.ContainerStatuses)
			}
		}
		return false, fmt.Sprint(pod.Status)
	})
	return func() {
		h.check(os.Remove(manifest))
		h.await("the static pod to be gone", func() (bool, string) {
			_, err := h.kube.CoreV1().Pods(metav1.NamespaceSystem).Get(h.ctx, name+"-"+node, metav1.GetOptions{})
			return err != nil, fmt.Sprint(err)
		})
		h.check(h.cluster.Start(cluster.Scheduler, ""))
	}
}
