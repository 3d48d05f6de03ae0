package deviceplugin

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeslot/kubeslot/test/cluster"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// devicePlugins is a node's folder of the kubelet for device plugins, as the host sees it.
func devicePlugins(node string) string {
	for _, n := range shared.Nodes() {
		if n.Name == node {
			return filepath.Join(n.KubeletDir, "device-plugins")
		}
	}
	return ""
}

// T5.4: a kubelet that restarts has all ids of all plugins within a second, so that it
// leaves running pods alone and admits new ones.
func TestKubeletRestart(t *testing.T) {
	testAll(t, "restarts the kubelet")
	r := newRig(t)
	in := r.configuration("reg", 3, nil, "east", "west")
	r.awaitAmounts(nodeA, map[string]string{"reg": "2/2", in[0]: "3/3", in[1]: "3/3"})
	r.run(newPod("stays", nodeA, "main=reg:2"))
	r.run(newPod("instance", nodeA, "main="+in[0]+":1"))
	// Once the containers do not run that started with an image: one that waits for its
	// next attempt is admitted anew.
	crashes := newPod("crashes", nodeA, "main="+in[1]+":1")
	crashes.Spec.Containers[0].Args = []string{"exit", "1"}
	r.create(crashes)
	r.await("pod crashes to have crashed twice", func() (bool, string) {
		s := r.pod("crashes").Status.ContainerStatuses
		return len(s) > 0 && s[0].RestartCount >= 2 && s[0].State.Waiting != nil, fmt.Sprint(s)
	})
	id, usage := r.containers("stays")[0].Id, r.usage()

	folder, restarted := devicePlugins(nodeA), time.Now()
	r.check(shared.Restart(cluster.Kubelet, nodeA))
	r.check(shared.AwaitServing(r.ctx, cluster.Kubelet, nodeA))
	r.await("the plugins to be registered again", func() (bool, string) {
		kubelet, err := os.Stat(filepath.Join(folder, "kubelet.sock"))
		if err != nil || kubelet.ModTime().Before(restarted) {
			return false, fmt.Sprint("the new kubelet has no socket yet: ", err)
		}
		ours, err := filepath.Glob(filepath.Join(folder, "kubeslot-*.sock"))
		r.check(err)
		var last time.Duration
		for _, path := range ours {
			info, err := os.Stat(path)
			if err != nil || info.ModTime().Before(kubelet.ModTime()) {
				return false, path + " is not there yet"
			}
			last = max(last, info.ModTime().Sub(kubelet.ModTime()))
		}
		if len(ours) == 3 {
			t.Logf("all plugins had their sockets %s after the kubelet's", last.Round(time.Millisecond))
		}
		return len(ours) == 3, fmt.Sprint(ours)
	})
	r.run(newPod("after", nodeA, "main="+in[0]+":1")) // admitted by the ids that the new kubelet has
	for _, name := range []string{"stays", "instance", "crashes"} {
		if p := r.pod(name); p.Status.Phase == corev1.PodFailed {
			t.Errorf("pod %s has failed: %s: %s", name, p.Status.Reason, p.Status.Message)
		}
	}
	if now := r.containers("stays"); len(now) != 1 || now[0].Id != id {
		t.Errorf("the container was %s, and is %v", id, now)
	}
	after := r.usage()
	for s, who := range usage {
		if after[s] != who {
			t.Errorf("slot %s was %q and is %q", s, who, after[s])
		}
	}
	r.awaitAmounts(nodeA, map[string]string{in[0]: "3/2", in[1]: "3/2"})
}

// T5.5: while kubecri is away pods run on and the node has nothing to give; then all is as
// before, and what ended meanwhile is released.
func TestKubecriAway(t *testing.T) {
	testAll(t, "kills kubecri")
	r := newRig(t)
	in := r.configuration("away", 2, nil, "east")
	r.awaitAmounts(nodeA, map[string]string{"away": "1/1", in[0]: "2/2"})
	r.run(newPod("stays", nodeA, "main=away:1"))
	r.run(newPod("goes", nodeA, "main=away:1"))
	id, kept, freed := r.containers("stays")[0].Id, r.slots("stays"), r.slots("goes")
	r.check(shared.Kill(cluster.Kubecri, nodeA, syscall.SIGKILL))
	r.awaitAmounts(nodeA, map[string]string{"away": "2/0", in[0]: "2/0"})
	r.check(kube.CoreV1().Pods(r.ns).Delete(r.ctx, "goes", metav1.DeleteOptions{}))
	r.await("pod goes to be gone", func() (bool, string) {
		_, err := kube.CoreV1().Pods(r.ns).Get(r.ctx, "goes", metav1.GetOptions{})
		return err != nil, "it is there"
	})
	if r.usage()[freed[0]] == "" {
		t.Error("its slot is free, and nobody can have released it")
	}
	r.check(shared.Start(cluster.Kubecri, nodeA))
	r.await("its slot to be free", func() (bool, string) {
		usage := r.usage()
		return usage[freed[0]] == "" && usage[kept[0]] != "", fmt.Sprint(usage)
	})
	r.awaitAmounts(nodeA, map[string]string{"away": "2/2", in[0]: "2/1"})
	if now := r.containers("stays"); len(now) != 1 || now[0].Id != id {
		t.Errorf("the container was %s, and is %v", id, now)
	}
}

// T5.6 and T5.9: an init container alone holds a slot, for longer than anybody's grace;
// and so does a pod whose image is not there yet.
func TestSlowStart(t *testing.T) {
	testAll(t, "waits for 40 s")
	t.Parallel()
	r := newRig(t)
	r.configuration("slow", 2, nil, "east", "west")
	r.awaitAmounts(nodeA, map[string]string{"slow": "2/2"})
	slow := newPod("slow", nodeA, "init:first=slow:1", "main=")
	slow.Spec.InitContainers[0].Args = []string{"sleep", "45s"}
	pulls := newPod("pulls", nodeA, "init:first=slow:1", "main=")
	pulls.Spec.InitContainers[0].Image = "kubeslot.test/not-there:1"
	began := time.Now()
	r.create(slow)
	r.create(pulls)
	r.await("both to have their slots", func() (bool, string) {
		usage := r.usage()
		return len(usage) == 2, fmt.Sprint(usage)
	})
	held := r.usage()
	for time.Since(began) < 40*time.Second {
		if now := r.usage(); len(now) != 2 {
			t.Fatalf("after %s slots are %v, were %v", time.Since(began).Round(time.Second), now, held)
		}
		select {
		case <-time.After(time.Second):
		case <-r.ctx.Done():
			t.Fatal("the test has no time left")
		}
	}
	r.check(kube.CoreV1().Pods(r.ns).Delete(r.ctx, "pulls", metav1.DeleteOptions{}))
	r.await("the slot of pod pulls to be free", func() (bool, string) {
		usage := r.usage()
		return len(usage) == 1, fmt.Sprint(usage)
	})
}

// T5.7: Akri's #849: a Deployment of strategy Recreate and a device of one slot. The new
// pod is there before the old one's slot is released. On the same node that must not
// matter, and another node must not be taken for one with a free slot.
func TestRecreate(t *testing.T) {
	testAll(t, "rolls a Deployment out a dozen times")
	for name, node := range map[string]string{"one": nodeA, "two": ""} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.configuration("rec"+name, 1, nil, "east")
			r.awaitAmounts(nodeA, map[string]string{"rec" + name: "1/1"})
			r.awaitAmounts(nodeB, map[string]string{"rec" + name: "1/1"})
			one, labels := int32(1), map[string]string{"app": "viewer"}
			d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "viewer"}, Spec: appsv1.DeploymentSpec{Replicas: &one,
				Selector: &metav1.LabelSelector{MatchLabels: labels}, Strategy: appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType},
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: newPod("", node, "main=rec"+name+":1").Spec}}}
			_, err := kube.AppsV1().Deployments(r.ns).Create(r.ctx, d, metav1.CreateOptions{})
			r.check(err)
			for round := range 6 {
				r.await(fmt.Sprintf("round %d to be available", round), func() (bool, string) {
					now, err := kube.AppsV1().Deployments(r.ns).Get(r.ctx, "viewer", metav1.GetOptions{})
					r.check(err)
					s := now.Status
					return s.ObservedGeneration == now.Generation && s.UpdatedReplicas == 1 && s.AvailableReplicas == 1, fmt.Sprintf("%+v", s)
				})
				// The scheduler's view of the node that has no slot now: a race that stays
				// (docs/device-plugin-mode.md), and which a slow machine may lose.
				began := time.Now()
				r.await("one node alone to have the slot", func() (bool, string) {
					a, b := r.amounts(nodeA, "rec"+name), r.amounts(nodeB, "rec"+name)
					return a+b == "1/1"+"0/0" || a+b == "0/0"+"1/1", a + " and " + b
				})
				t.Logf("round %d: the other node showed it %s after the pod was available", round, time.Since(began).Round(time.Millisecond))
				_, err := shared.Kubectl(r.ctx, "patch", "deployment", "viewer", "-n", r.ns, "--type=merge",
					"-p", fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{"round":"%d"}}}}}`, round))
				r.check(err)
			}
			pods, err := kube.CoreV1().Pods(r.ns).List(r.ctx, metav1.ListOptions{})
			r.check(err)
			for _, p := range pods.Items {
				if p.Status.Phase == corev1.PodFailed {
					t.Errorf("pod %s has failed on %s: %s: %s", p.Name, p.Spec.NodeName, p.Status.Reason, p.Status.Message)
				}
			}
		})
	}
}

// T5.8: without the API server no slot can be claimed. The kubelet gets its answer soon
// and goes on with other pods.
func TestAPIServerCut(t *testing.T) {
	testAll(t, "cuts a node off")
	r := newRig(t)
	r.configuration("cut", 2, nil, "east")
	r.awaitAmounts(nodeA, map[string]string{"cut": "1/1"})
	// The kubelet has its pods from files here: it hears of no others while it is cut off.
	static := func(name string, p *corev1.Pod) (remove func()) {
		data := fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s, namespace: %s}\nspec:\n  containers:\n  - name: main\n    image: %s\n    imagePullPolicy: Never\n",
			name, r.ns, cluster.AppImage)
		for resource, n := range p.Spec.Containers[0].Resources.Limits {
			data += fmt.Sprintf("    resources: {limits: {%s: %q}}\n", resource, n.String())
		}
		path := filepath.Join(shared.Nodes()[0].StaticPodDir, r.ns+"-"+name+".yaml")
		r.check(os.WriteFile(path, []byte(data), 0o644))
		return func() { os.Remove(path) }
	}
	r.check(shared.Partition(nodeA))
	defer shared.Heal(nodeA)
	began := time.Now()
	defer static("wants", newPod("", "", "main=cut:1"))()
	defer static("plain", newPod("", "", "main="))()
	log := shared.LogPath(cluster.Kubecri, nodeA)
	r.await("kubecri to refuse the pod", func() (bool, string) {
		data, err := os.ReadFile(log)
		r.check(err)
		at := strings.LastIndex(string(data), "a container does not get its devices")
		return at >= 0 && strings.Contains(string(data[at:]), "akri.sh/cut"), "no line of it in " + log
	})
	r.await("the other pod to run", func() (bool, string) { return r.runs(nodeA, "plain-"+nodeA), "" })
	t.Logf("both within %s", time.Since(began).Round(100*time.Millisecond))
	r.check(shared.Heal(nodeA))
	r.await("no slot to be taken", func() (bool, string) {
		usage := r.usage()
		return len(usage) == 0, fmt.Sprint(usage)
	})
}

// T5.10: an Instance that is gone keeps the ids that pods hold, and goes with them.
func TestInstanceGone(t *testing.T) {
	testAll(t, "restarts the kubelet")
	r := newRig(t)
	in := r.configuration("gone", 2, nil, "east", "west")
	r.awaitAmounts(nodeA, map[string]string{"gone": "2/2", in[0]: "2/2", in[1]: "2/2"})
	r.run(newPod("one", nodeA, "main="+in[0]+":1"))
	r.run(newPod("any", nodeA, "main=gone:2"))
	id := r.containers("one")[0].Id
	c, err := akri.AkriV0().Configurations(r.ns).Get(r.ctx, "gone", metav1.GetOptions{})
	r.check(err)
	r.check(akri.AkriV0().Configurations(r.ns).Delete(r.ctx, c.Name, metav1.DeleteOptions{}))
	r.awaitAmounts(nodeA, map[string]string{"gone": "2/2", in[0]: "1/1", in[1]: "0/0"})
	r.check(shared.Restart(cluster.Kubelet, nodeA))
	r.check(shared.AwaitServing(r.ctx, cluster.Kubelet, nodeA))
	r.awaitAmounts(nodeA, map[string]string{"gone": "2/2", in[0]: "1/1"})
	for _, name := range []string{"one", "any"} {
		if p := r.pod(name); p.Status.Phase != corev1.PodRunning {
			t.Errorf("pod %s is %s: %s %s", name, p.Status.Phase, p.Status.Reason, p.Status.Message)
		}
	}
	if now := r.containers("one"); len(now) != 1 || now[0].Id != id {
		t.Errorf("the container was %s, and is %v", id, now)
	}
	r.remove("one")
	r.remove("any")
	r.awaitAmounts(nodeA, map[string]string{"gone": "0/0", in[0]: "0/0"})
}

// Ten pods of ten, on two nodes, over five slots: five run, and each slot has one of them.
func TestTenPodsFiveSlots(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.configuration("ten", 5, nil, "east")
	r.awaitAmounts(nodeA, map[string]string{"ten": "1/1"})
	r.awaitAmounts(nodeB, map[string]string{"ten": "1/1"})
	// Bound by hand: each kubelet has five pods to admit at once, by a list of its own.
	for i := range 10 {
		p := newPod(fmt.Sprint("p", i), "", "main=ten:1")
		p.Spec.NodeName = shared.Nodes()[i%2].Name
		r.create(p)
	}
	running := map[string]bool{}
	r.await("all pods to run or to have failed", func() (bool, string) {
		left := 0
		for i := range 10 {
			name := fmt.Sprint("p", i)
			switch p := r.pod(name); p.Status.Phase {
			case corev1.PodRunning:
				running[name] = true
			case corev1.PodFailed:
			default:
				left++
			}
		}
		return left == 0, fmt.Sprint(left, " are neither")
	})
	seen := map[string]string{}
	for name := range running {
		for _, s := range r.slots(name) {
			if other := seen[s]; other != "" {
				t.Errorf("pods %s and %s both have slot %s", name, other, s)
			}
			seen[s] = name
		}
	}
	if usage := r.usage(); len(running) == 0 || len(running) > 5 || len(usage) != len(running) {
		t.Errorf("%d pods run, of claims %v", len(running), usage)
	}
	t.Logf("%d pods run", len(running))
}

// Scope Pod cannot be kept, and the Configuration is told so.
func TestPodScopeIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	in := r.configuration("scoped", 2, func(s *akriv0.ConfigurationSpec) { s.UniqueScope = akriv0.UniquePerPod }, "east")
	r.awaitAmounts(nodeA, map[string]string{in[0]: "2/2"})
	if got := r.amounts(nodeA, "scoped"); got != "" {
		t.Errorf("node-a has %s of it", got)
	}
	r.await("an Event that says why", func() (bool, string) {
		list, err := kube.CoreV1().Events(r.ns).List(r.ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=scoped"})
		r.check(err)
		var all []string
		for _, e := range list.Items {
			all = append(all, e.Reason+": "+e.Message)
		}
		return slices.ContainsFunc(all, func(s string) bool {
			return strings.Contains(s, "UniqueScopeNotSupported") && strings.Contains(s, "uniqueScope Container or Node")
		}), fmt.Sprint(all)
	})
}
