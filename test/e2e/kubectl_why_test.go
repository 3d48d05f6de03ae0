package e2e

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// `pod` says of real pods that do not run why, and what would let them run; the texts
// are those of the real scheduler, kubelet and kubecri.
func TestKubectlWhy(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	device := r.debugEcho("why", 2, nil, "why0")[0].name

	// The scheduler's reasons.
	r.create(newPod("misspelt", "", map[string]int64{"wyh": 1}))
	r.awaitKubeslot([]string{"pod", "misspelt"}, `NoSuchResource, container main, akri.sh/wyh: there is no Configuration or Instance of this name`, `did you mean "why"\?`)
	r.create(newPod("greedy", "", map[string]int64{"why": 2}))
	r.awaitKubeslot([]string{"pod", "greedy"}, `TooFewDevices, container main, akri.sh/why, on node-a,node-b: it asks for 2 different devices, and none of these nodes reaches more than 1`)
	elsewhere := newPod("elsewhere", "", map[string]int64{"why": 1})
	elsewhere.Spec.NodeSelector = map[string]string{"nobody": "has-it"}
	r.create(elsewhere)
	r.awaitKubeslot([]string{"pod", "elsewhere"}, `NodeNotSelected, on node-a,node-b: the pod's nodeSelector or node affinity does not select it`)
	gated := newPod("gated", "", map[string]int64{"why": 1})
	gated.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "example.com/quota"}}
	r.create(gated)
	r.awaitKubeslot([]string{"pod", "gated"}, `Gated for`, `SchedulingGated: it has scheduling gates \(example.com/quota\)`)
	ignored := newPod("ignored", "", map[string]int64{"why": 1})
	ignored.Spec.SchedulerName = "nobody"
	r.create(ignored)
	r.awaitKubeslot([]string{"pod", "ignored"}, `NoScheduler: .* its schedulerName is "nobody"`)
	thirsty := newPod("thirsty", "", map[string]int64{"why": 1})
	thirsty.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("900")
	r.create(thirsty)
	r.awaitKubeslot([]string{"pod", "thirsty"}, `InsufficientResource, cpu, on node-a,node-b: it asks for 900 of cpu`)

	// The node's reasons.
	past := newPod("past", "", map[string]int64{"why": 1})
	past.Spec.NodeSelector, past.Spec.NodeName = nil, nodeA
	r.create(past)
	r.awaitKubeslot([]string{"pod", "past"}, `Starting for`, `NotAssigned, container main, akri.sh/why: it has a node and no slots: it was bound with spec.nodeName`,
		`Says the kubelet, of container main: .*kubecri does not start container`)
	r.delete("past")
	image := newPod("image", nodeA, map[string]int64{"why": 1})
	image.Spec.Containers[0].Image = "kubeslot.test/none:1"
	r.create(image)
	r.awaitKubeslot([]string{"pod", "image"}, `Image, container main: ErrImageNeverPull`, `It has:`)
	r.delete("image")

	// A pod that was made to go: its name is in the event of the pod that is gone.
	for _, name := range []string{"first", "second"} {
		r.create(newPod(name, nodeA, map[string]int64{"why": 1}))
		r.awaitRunning(name)
	}
	vip := newPod("vip", nodeA, map[string]int64{"why": 1})
	vip.Spec.PriorityClassName = r.priorityClass(1000)
	r.create(vip)
	r.awaitRunning("vip")
	r.await("kubectl kubeslot pod to say who preempted", func() (bool, string) {
		said := ""
		for _, name := range []string{"first", "second"} {
			_, stderr, code := r.kubeslot("pod", name)
			said += stderr
			if code == 1 && strings.Contains(stderr, "Preempted by pod "+r.ns+"/vip on node "+nodeA) {
				return true, ""
			}
		}
		return false, "it says " + said
	})
	r.awaitKubeslot([]string{"pod", "vip"}, `Running for`, `main +`+device+`-[01] +Held`)
}

// `--watch` prints rows as they change, until it is interrupted.
func TestKubectlWatch(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.debugEcho("watched", 1, nil, "watched0")
	cmd := r.kubeslotCommand("slots", "watched", "--watch")
	out, err := cmd.StdoutPipe()
	r.check(err)
	r.check(cmd.Start())
	lines := make(chan string, 100)
	go func() {
		defer close(lines)
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			lines <- scanner.Text()
		}
	}()
	next := func(what string) {
		t.Helper()
		r.await("kubectl kubeslot slots --watch to print "+what, func() (bool, string) {
			select {
			case line, open := <-lines:
				return open && regexp.MustCompile(what).MatchString(line), line
			default:
				return false, "nothing more"
			}
		})
	}
	next("Free")
	r.create(newPod("holder", nodeA, map[string]int64{"watched": 1}))
	next("Held +" + r.ns + "/holder +main +node-a")
	r.delete("holder")
	next("Free")
	r.check(cmd.Process.Signal(os.Interrupt))
	if err := cmd.Wait(); err != nil {
		t.Errorf("interrupted it ends with %v", err)
	}
}

// kubectl completes the plugin's arguments with the plugin's help, under its other name.
func TestKubectlCompletion(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	devices := r.debugEcho("completed", 1, nil, "completed0")
	folder := t.TempDir()
	r.check(os.Symlink(filepath.Join(shared.BinDir(), "kubectl-kubeslot"), filepath.Join(folder, "kubectl_complete-kubeslot")))
	cmd := exec.CommandContext(r.ctx, filepath.Join(shared.BinDir(), "kubectl"), "__complete", "kubeslot", "-n", r.ns, "slots", "comp")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+shared.Kubeconfig(), "PATH="+folder+":"+shared.BinDir())
	text, err := cmd.Output()
	if want := "completed\n" + devices[0].name + "\n:4\n"; err != nil || !strings.HasPrefix(string(text), want) {
		t.Errorf("kubectl __complete kubeslot slots comp prints %q, %v; want %q", text, err, want)
	}
}
