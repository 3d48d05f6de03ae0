package brokers

import (
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeslot/kubeslot/controller/inventory"
	"github.com/kubeslot/kubeslot/controller/naming"
)

// shows is a lookup of these pods, on the nodes of f.
func shows(f *facts, pods ...*corev1.Pod) lookup {
	return func() ([]*corev1.Pod, map[string]inventory.Node, error) { return pods, f.nodes, nil }
}

// The broker of Instance i on node a asks; the others are there.
func TestWhoseTurnItIs(t *testing.T) {
	f := newFacts(t, configuration(1, onePod), "a b c!")
	young := func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(start.Add(-time.Second)) }
	type pods = []func(*facts) *corev1.Pod
	for name, tc := range map[string]struct {
		others pods
		wait   time.Duration
	}{
		"alone":                                    {nil, 0},
		"others wait, too":                         {pods{brokerPod("b", "Ready", former)}, 0},
		"another node's is going":                  {pods{brokerPod("b", "Ready", former, going)}, askAgain},
		"another node's starts":                    {pods{brokerPod("b", "Starting", young)}, askAgain},
		"another node's waits for a slot":          {pods{brokerPod("b", "Pending", young)}, askAgain},
		"another node's is done":                   {pods{brokerPod("b", "Ready", young)}, 0},
		"the same node's is going, and starts":     {pods{brokerPod("a", "Ready", going), brokerPod("a", "Starting", young)}, 0},
		"the same node's and another's start":      {pods{brokerPod("a", "Starting", young), brokerPod("b", "Starting", young)}, askAgain},
		"the new spec fails":                       {pods{brokerPod("b", "Failed")}, askAgainStopped},
		"the new spec fails on the same node":      {pods{brokerPod("a", "Failed")}, 0},
		"the new spec does not become Ready":       {pods{brokerPod("b", "Starting")}, askAgainStopped},
		"one device fails, the spec works":         {pods{brokerPod("b", "Failed"), brokerPod("a", "Ready")}, 0},
		"a node that is not Ready holds up nobody": {pods{brokerPod("c", "Ready", former, going)}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var all []*corev1.Pod
			for _, make := range tc.others {
				all = append(all, make(f))
			}
			var r rollout
			got, err := r.take(types.NamespacedName{Name: "cam"}, turn{"i", "a"}, "asks", f.spec.hash, start, shows(f, all...))
			if err != nil || got != tc.wait {
				t.Errorf("wait %v, %v, want %v", got, err, tc.wait)
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
		wait, err := r.take(c, turn{instance, node}, types.UID("uid-of-"+instance+"-"+node), f.spec.hash, now, shows(f, pods...))
		if err != nil {
			t.Fatal(err)
		}
		return wait == 0
	}
	if !ask(cam, instanceName, "a", start) || !ask(cam, "i2", "a", start) || !ask(other, "x", "b", start) {
		t.Fatal("node a does not get its turn, or another Configuration's node b")
	}
	if ask(cam, "i3", "b", start.Add(time.Second)) {
		t.Error("node b gets a turn while node a has it")
	}
	successor, second := brokerPod("a", "Ready")(f), brokerPod("a", "Ready")(f)
	second.Labels[naming.Instance] = "i2"
	if ask(cam, "i3", "b", start.Add(2*time.Second), successor) {
		t.Error("node b gets a turn while one of node a's brokers has no successor")
	}
	if !ask(cam, "i3", "b", start.Add(3*time.Second), successor, second) {
		t.Error("node b gets no turn though node a is done")
	}
	if ask(cam, "i4", "a", start.Add(4*time.Second)) || !ask(cam, "i4", "a", start.Add(3*time.Second+startsWithin+1)) {
		t.Error("a turn without successor does not end, or too early")
	}
}

// A successor that does not become Ready holds up the other nodes for a minute, whatever the API
// server's clock says.
func TestTurnLastsByOneClock(t *testing.T) {
	for _, ahead := range []time.Duration{0, time.Hour, -time.Hour} {
		f := newFacts(t, configuration(1, onePod), "a b")
		works := brokerPod("a", "Ready")(f)
		var r rollout
		ask := func(after time.Duration, pods ...*corev1.Pod) time.Duration {
			wait, err := r.take(types.NamespacedName{Name: "cam"}, turn{"i", "b"}, "uid-b", f.spec.hash, start.Add(after), shows(f, pods...))
			if err != nil {
				t.Fatal(err)
			}
			return wait
		}
		busy := brokerPod("a", "Ready", former, going)(f)
		starts := brokerPod("a", "Starting")(f)
		starts.UID, starts.CreationTimestamp = "new", metav1.NewTime(start.Add(ahead))
		if ask(0, busy, works) == 0 || ask(10*time.Second, starts, works) == 0 || ask(50*time.Second, starts, works) == 0 {
			t.Errorf("API server %s ahead: the next node does not wait for the successor", ahead)
		}
		if wait := ask(75*time.Second, starts, works); wait != 0 {
			t.Errorf("API server %s ahead: the next node waits %s more after a minute", ahead, wait)
		}
	}
}

// However many brokers wait for their turn, all brokers are looked at once a second,
// and again at once for another spec.
func TestOneLookForAllThatWait(t *testing.T) {
	f := newFacts(t, configuration(1, onePod), "a b")
	busy := brokerPod("b", "Ready", former, going)(f)
	var r rollout
	looks := 0
	look := func() ([]*corev1.Pod, map[string]inventory.Node, error) {
		looks++
		return []*corev1.Pod{busy}, f.nodes, nil
	}
	ask := func(i int, hash string, now time.Time) {
		t.Helper()
		if wait, err := r.take(types.NamespacedName{Name: "cam"}, turn{fmt.Sprint("i", i), "a"}, "uid", hash, now, look); err != nil || wait != askAgain {
			t.Fatalf("wait %v, %v, want %v", wait, err, askAgain)
		}
	}
	const waiting = 1000
	for i := range waiting {
		ask(i, "new", start.Add(lookEvery*time.Duration(i)/waiting))
	}
	if looks != 1 {
		t.Errorf("%d looks for %d brokers within %s, want 1", looks, waiting, lookEvery)
	}
	ask(0, "new", start.Add(lookEvery))
	ask(0, "newer", start.Add(lookEvery))
	if looks != 3 {
		t.Errorf("%d looks, want a second after %s and a third for another spec", looks, lookEvery)
	}
	failing := errors.New("no cache")
	if _, err := r.take(types.NamespacedName{Name: "cam"}, turn{"i", "a"}, "uid", "other", start, func() ([]*corev1.Pod, map[string]inventory.Node, error) { return nil, nil, failing }); !errors.Is(err, failing) {
		t.Errorf("a look that fails: %v", err)
	}
}
