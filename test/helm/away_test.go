package helm

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// An upgrade to an image that is not there takes kubecri from a node. Pods with devices go elsewhere, or
// wait and say why, and so do containers of pods that are there; others run there. They run once kubecri is
// back, without anybody's doing.
func TestUpgradeToAnImageThatIsNotThere(t *testing.T) {
	testAll(t, "upgrades to an image that is not there")
	in := up(t, 10*time.Minute)
	in.install("--set", "crds.keep=false")
	in.configure("cameras", "debugEcho", "descriptions: [gate, yard, door, roof]")
	in.awaitInstances("default", "cameras", 4, "node-a", "node-b")
	in.create(pod("before", "kubeslot", "cameras"))
	in.awaitRunning("before")
	in.kubectl("delete", "pod", "before", "--wait")
	on := func(node string, p *corev1.Pod) *corev1.Pod {
		p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
		return p
	}
	for _, node := range []string{"node-a", "node-b"} { // whose container ends, and is made again
		bound := on(node, pod("bound-"+node, "kubeslot", "cameras"))
		bound.Spec.Containers[0].Args = []string{"sleep", "15s"}
		in.create(bound)
		in.awaitRunning("bound-" + node)
	}

	in.helm("upgrade", "--reuse-values", "--set", "image.tag=not-there")
	away := ""
	in.await("kubecri to be away from a node", func() (bool, string) {
		list, err := in.kube.CoreV1().Pods(namespace).List(in.ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=kubecri"})
		in.check(err)
		for _, p := range list.Items {
			for _, s := range p.Status.ContainerStatuses {
				if s.Name == "kubecri" && !s.Ready && strings.HasSuffix(s.Image, ":not-there") {
					away = p.Spec.NodeName
				}
			}
		}
		return away != "", "all run"
	})
	in.create(on(away, pod("plain", "", "")))
	in.awaitRunning("plain")
	in.await("the container of a pod that was there not to be made without kubecri", func() (bool, string) {
		p, err := in.kube.CoreV1().Pods("default").Get(in.ctx, "bound-"+away, metav1.GetOptions{})
		in.check(err)
		state := p.Status.ContainerStatuses[0].State
		return state.Waiting != nil && strings.Contains(state.Waiting.Message, `required plugin "kubecri" not present`), state.String()
	})
	for _, command := range [][]string{{"pod", "bound-" + away}, {"node", away}} {
		if out := in.kubectl(append([]string{"kubeslot"}, command...)...); !strings.Contains(out, "KubecriAway") || !strings.Contains(out, "kubecri is not on node "+away) {
			in.Errorf("kubectl kubeslot %s says\n%s", strings.Join(command, " "), out)
		}
	}
	in.create(on(away, pod("waits", "kubeslot", "cameras")))
	in.await("the pod for that node to say why it waits", func() (bool, string) {
		p, err := in.kube.CoreV1().Pods("default").Get(in.ctx, "waits", metav1.GetOptions{})
		in.check(err)
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodScheduled && strings.Contains(c.Message, "kubecri is not ready on the node") {
				return p.Spec.NodeName == "", c.Message
			}
		}
		return false, p.Spec.NodeName
	})
	if out := in.kubectl("kubeslot", "pod", "waits"); !strings.Contains(out, "KubecriAway") {
		in.Errorf("kubectl kubeslot pod waits says\n%s", out)
	}
	in.create(pod("elsewhere", "kubeslot", "cameras"))
	in.awaitRunning("elsewhere")
	if p, err := in.kube.CoreV1().Pods("default").Get(in.ctx, "elsewhere", metav1.GetOptions{}); err != nil || p.Spec.NodeName == away {
		in.Errorf("pod elsewhere is on %s, from which kubecri is away (%v)", p.Spec.NodeName, err)
	}

	in.helm("rollback", "kubeslot", "--wait", "--timeout", "4m")
	in.awaitReady("kubecri", "kube-scheduler", "kubeslot-controller")
	in.awaitRunning("waits")
	in.awaitRunning("bound-" + away)
	if env := in.kubectl("exec", "waits", "--", "/app", "env"); !strings.Contains(env, "AKRI_DEVICES=") {
		in.Errorf("it runs without its device:\n%s", env)
	}
	in.kubectl("delete", "pod", "plain", "waits", "elsewhere", "bound-node-a", "bound-node-b", "--wait")
	in.kubectl("delete", "configurations", "--all")
	in.uninstall()
}
