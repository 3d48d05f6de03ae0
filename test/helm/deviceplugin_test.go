package helm

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// Device-plugin mode, as docs/device-plugin-mode.md installs it: beside the cluster's own
// scheduler, whose pods get devices. To uninstall it takes as long as a kubelet writes the
// amounts of plugins that are gone: `make test-device-plugin-long`.
func TestDevicePluginMode(t *testing.T) {
	if os.Getenv("LONG") == "" {
		t.Skip("takes ten minutes: run `make test-device-plugin-long` as root")
	}
	in := up(t, 20*time.Minute)
	before := in.state()
	in.helm("install", "--create-namespace", "--wait", "--timeout", "4m", "--set", "kubecri.mode=device-plugin", "--set", "scheduler.enabled=false", "--set", "crds.keep=false")
	in.awaitReady("kubecri", "kubeslot-controller")
	in.configure("managed", "debugEcho", "descriptions: [gate]")
	nodes := func(want string) {
		t.Helper()
		in.await("both nodes to have "+want, func() (bool, string) {
			list, err := in.kube.CoreV1().Nodes().List(in.ctx, metav1.ListOptions{LabelSelector: v1alpha1.ModeLabel + "=" + v1alpha1.ModeDevicePlugin})
			in.check(err)
			seen := ""
			for _, n := range list.Items {
				all, healthy := n.Status.Capacity["akri.sh/managed"], n.Status.Allocatable["akri.sh/managed"]
				seen += fmt.Sprintf("%s/%s ", all.String(), healthy.String())
			}
			return seen == want, seen
		})
	}
	nodes("1/1 1/1 ")
	in.create(pod("viewer", "", "managed"))
	in.awaitRunning("viewer")
	if env := in.kubectl("exec", "viewer", "--", "/app", "env"); !strings.Contains(env, "AKRI_DEVICES_MANAGED=") || !strings.Contains(env, "DEBUG_ECHO_DESCRIPTION_") {
		t.Errorf("the viewer's container has no camera:\n%s", env)
	}
	in.create(pod("second", "", "managed"))
	in.await("the second viewer to wait for the camera", func() (bool, string) {
		p, err := in.kube.CoreV1().Pods("default").Get(in.ctx, "second", metav1.GetOptions{})
		in.check(err)
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
				return strings.Contains(c.Message, "Insufficient akri.sh/managed"), c.Message
			}
		}
		return false, fmt.Sprint(p.Status)
	})

	// kubecri's pods are replaced: who has a camera keeps it.
	started, replaced := in.containerID("viewer"), in.ourPods("kubecri")
	in.helm("upgrade", "--reuse-values", "--wait", "--timeout", "4m", "--set", "kubecri.extraArgs={--v=2}")
	in.awaitReady("kubecri", "kubeslot-controller")
	for name := range in.ourPods("kubecri") {
		if replaced[name] {
			t.Errorf("pod %s was not replaced", name)
		}
	}
	if id := in.containerID("viewer"); id != started {
		t.Errorf("the viewer's container was %s, and is %s since the upgrade", started, id)
	}
	in.delete("viewer")
	in.awaitRunning("second")

	in.delete("second")
	in.check(in.client.AkriV0().Configurations("default").Delete(in.ctx, "managed", metav1.DeleteOptions{}))
	in.helm("uninstall", "kubeslot", "--wait", "--timeout", "12m")
	in.expect(before)
}
