package brokers

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeslot/kubeslot/controller/naming"
)

// The broker of Instance i on node a asks; the others are there.
func TestWhoseTurnItIs(t *testing.T) {
	f := newFacts(t, configuration(1, onePod), "a b c!")
	young := func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(start.Add(-time.Second)) }
	type pods = []func(*facts) *corev1.Pod
	for name, tc := range map[string]struct {
		others pods
		want   bool
	}{
		"alone":                                    {nil, true},
		"others wait, too":                         {pods{brokerPod("b", "Ready", former)}, true},
		"another node's is going":                  {pods{brokerPod("b", "Ready", former, going)}, false},
		"another node's starts":                    {pods{brokerPod("b", "Starting", young)}, false},
		"another node's waits for a slot":          {pods{brokerPod("b", "Pending", young)}, false},
		"another node's is done":                   {pods{brokerPod("b", "Ready", young)}, true},
		"the same node's is going, and starts":     {pods{brokerPod("a", "Ready", going), brokerPod("a", "Starting", young)}, true},
		"the new spec fails":                       {pods{brokerPod("b", "Failed")}, false},
		"the new spec does not become Ready":       {pods{brokerPod("b", "Starting")}, false},
		"one device fails, the spec works":         {pods{brokerPod("b", "Failed"), brokerPod("a", "Ready")}, true},
		"a node that is not Ready holds up nobody": {pods{brokerPod("c", "Ready", former, going)}, true},
	} {
		t.Run(name, func(t *testing.T) {
			var all []*corev1.Pod
			for _, make := range tc.others {
				all = append(all, make(f))
			}
			var r rollout
			if got := r.mayReplace(types.NamespacedName{Name: "cam"}, turn{"i", "a"}, "asks", f.spec.hash, all, f.nodes, start); got != tc.want {
				t.Errorf("%v, want %v", got, tc.want)
			}
		})
	}
}

// A turn that was granted lasts until the successor is there, whatever the cache does
// not show yet.
func TestTurnLasts(t *testing.T) {
	f := newFacts(t, configuration(1, onePod), "a b")
	cam, other := types.NamespacedName{Name: "cam"}, types.NamespacedName{Name: "other"}
	var r rollout
	ask := func(c types.NamespacedName, instance, node string, now time.Time, pods ...*corev1.Pod) bool {
		return r.mayReplace(c, turn{instance, node}, types.UID("uid-of-"+instance+"-"+node), f.spec.hash, pods, f.nodes, now)
	}
	if !ask(cam, instanceName, "a", start) || !ask(cam, "i2", "a", start) || !ask(other, "x", "b", start) {
		t.Fatal("node a does not get its turn, or another Configuration's node b")
	}
	if ask(cam, "i3", "b", start.Add(time.Second)) {
		t.Error("node b gets a turn while node a has it")
	}
	successor, second := brokerPod("a", "Ready")(f), brokerPod("a", "Ready")(f)
	second.Labels[naming.Instance] = "i2"
	if ask(cam, "i3", "b", start.Add(time.Second), successor) {
		t.Error("node b gets a turn while one of node a's brokers has no successor")
	}
	if !ask(cam, "i3", "b", start.Add(2*time.Second), successor, second) {
		t.Error("node b gets no turn though node a is done")
	}
	if ask(cam, "i4", "a", start.Add(3*time.Second)) || !ask(cam, "i4", "a", start.Add(2*time.Second+startsWithin+1)) {
		t.Error("a turn without successor does not end, or too early")
	}
}
