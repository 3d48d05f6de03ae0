package brokers

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

var phases = map[string]phase{"waits": waiting, "starting": starting, "late": late, "done": done}

// rolloutRig is a rollout of the Configuration cam, and whom it has woken.
type rolloutRig struct {
	*testing.T
	rollout
	c     *akriv0.Configuration
	hash  string
	seed  map[string][]step
	woken []string
}

func newRolloutRig(t *testing.T) *rolloutRig {
	r := &rolloutRig{T: t, c: configuration(1, onePod), hash: "new"}
	r.wake = func(key types.NamespacedName) { r.woken = append(r.woken, key.Name) }
	return r
}

// report reports brokers of an Instance, as "a:waits b:done", and returns the nodes that have their turn.
func (r *rolloutRig) report(instance, brokers string) string {
	r.Helper()
	steps := stepsIn(r.T, instance, brokers)
	turns, err := r.rollout.report(r.c, r.hash, instance, steps, func() (map[string][]step, error) {
		seed := map[string][]step{}
		for i, steps := range r.seed {
			seed[i] = slices.Clone(steps)
		}
		return seed, nil
	})
	if err != nil {
		r.Fatal(err)
	}
	return strings.Join(turns, " ")
}

// wakes are the Instances that were woken since the last call.
func (r *rolloutRig) wakes() string {
	slices.Sort(r.woken)
	text := strings.Join(r.woken, " ")
	r.woken = nil
	return text
}

func stepsIn(t *testing.T, instance, brokers string) (all []step) {
	t.Helper()
	for word := range strings.FieldsSeq(brokers) {
		node, name, _ := strings.Cut(word, ":")
		is, known := phases[name]
		if !known {
			t.Fatalf("%q: no such phase", word)
		}
		st := step{node: node, phase: is, works: is == done}
		if is == waiting {
			st.pod = types.UID(instance + "-" + node)
		}
		all = append(all, st)
	}
	return all
}

// The broker of Instance i on node a waits; those of others have come so far.
func TestWhoseTurnItIs(t *testing.T) {
	for name, tc := range map[string]struct {
		others string
		turn   bool
	}{
		"alone":                                {"", true},
		"another node's starts":                {"b:starting", false},
		"another node's is done":               {"b:done", true},
		"the same node's starts":               {"a:starting", true},
		"the same node's and another's start":  {"a:starting b:starting", true},
		"the new spec is late":                 {"b:late", false},
		"the new spec is late on two nodes":    {"a:late b:late", false},
		"the new spec is late on the same one": {"a:late", true},
		"one device is late, the spec works":   {"b:late c:done", true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRolloutRig(t)
			r.seed = map[string][]step{"other": stepsIn(t, "other", tc.others)}
			if got := r.report("i", "a:waits") == "a"; got != tc.turn {
				t.Errorf("has its turn: %v, want %v", got, tc.turn)
			}
		})
	}
}

// Each line is what an Instance reports, the nodes that have their turn then, and the Instances that are
// woken.
func TestTurnsAreHandedOut(t *testing.T) {
	for name, story := range map[string]string{
		"all brokers of a node have their turn together": `
			i1 a:waits | a |
			i2 a:waits | a |
			i3 b:waits | |
			i4 b:waits c:waits | |
			i1 a:waits | a |          the cache does not show yet that it is being deleted
			i1 a:starting | |
			i1 a:done | |             node a has another
			i3 b:waits | |
			i2 a:done | | i3 i4
			i3 b:waits | b |
			i4 b:waits c:waits | b |
			i3 b:done | |
			i4 b:done c:waits | c |`,
		"a device that is gone gives its turn back": `
			i1 a:waits | a |
			i2 b:waits | |
			i3 c:waits | |
			i1 | | i2
			i2 | | i3`,
		"a late broker holds up nobody while the spec works": `
			i0 z:done | |
			i1 a:waits | a |
			i2 b:waits | |
			i1 a:starting | |
			i1 a:late | | i2`,
		"all wait while the spec works nowhere, and go on when it does": `
			i1 a:waits | a |
			i2 b:waits | |
			i3 b:waits | |
			i1 a:late | |
			i2 b:waits | |
			i4 a:waits | a |          on the node where it does not work
			i4 a:late | |
			i1 a:done | | i2 i3`,
		"who waits no more is not woken": `
			i1 a:waits | a |
			i2 b:waits | |
			i3 c:waits | |
			i2 b:late | |
			i1 a:done | | i3`,
		"a broker that is removed at once holds up the next node": `
			i1 a:starting | |
			i2 b:waits | |
			i1 a:done | | i2`,
	} {
		t.Run(name, func(t *testing.T) {
			r := newRolloutRig(t)
			for line := range strings.Lines(strings.TrimSpace(story)) {
				says, rest, _ := strings.Cut(line, "|")
				turns, rest, _ := strings.Cut(rest, "|")
				wakes, _, _ := strings.Cut(rest, "   ") // a remark follows
				instance, brokers, _ := strings.Cut(strings.TrimSpace(says), " ")
				if got := r.report(instance, brokers); got != strings.TrimSpace(turns) {
					t.Errorf("%s: turns %q", strings.TrimSpace(line), got)
				}
				if got := r.wakes(); got != strings.TrimSpace(wakes) {
					t.Errorf("%s: wakes %q", strings.TrimSpace(line), got)
				}
			}
		})
	}
}

// A turn is one pod's: its successor, whose device has other properties by now, waits anew.
func TestTurnIsOnePods(t *testing.T) {
	r := newRolloutRig(t)
	r.report("i1", "a:waits")
	r.report("i2", "b:waits")
	turns, err := r.rollout.report(r.c, r.hash, "i1", []step{{node: "a", pod: "its successor"}}, nil)
	if err != nil || len(turns) > 0 {
		t.Errorf("turns %q, %v", turns, err)
	}
	if got := r.wakes(); got != "i2" {
		t.Errorf("wakes %q, want i2", got)
	}
}

// Another spec begins a roll-out of its own, with the turns that are taken. What is of the former spec is
// not listened to, and each Configuration has its own turns.
func TestAnotherSpec(t *testing.T) {
	r := newRolloutRig(t)
	r.report("i1", "a:waits")
	r.report("i2", "b:waits")
	former := r.c
	r.c, r.hash = changedSpec(), "newer"
	if got := r.report("i2", "b:waits"); got != "" {
		t.Errorf("node %q has its turn while node a has it", got)
	}
	r.c, r.hash = former, "new"
	if got := r.report("i2", "b:done") + r.wakes(); got != "" {
		t.Errorf("%q follows from the former spec", got)
	}
	r.c, r.hash = changedSpec(), "newer"
	if r.report("i1", "a:done"); r.wakes() != "i2" {
		t.Error("node b does not have its turn after node a")
	}
	r.c = configuration(1, onePod)
	r.c.Name, r.c.UID = "other", "other"
	if got := r.report("i9", "z:waits"); got != "z" {
		t.Errorf("of another Configuration node %q has its turn, want z", got)
	}
	r.c.UID = "deleted and made again"
	if got := r.report("i8", "y:waits"); got != "y" {
		t.Errorf("of the Configuration that was made again node %q has its turn, want y", got)
	}
}

// Pods are listed once for a spec, and nothing is decided without.
func TestPodsAreListedOnce(t *testing.T) {
	r := newRolloutRig(t)
	failing, lists := errors.New("no cache"), 0
	list := func() (map[string][]step, error) {
		if lists++; lists == 1 {
			return nil, failing
		}
		return map[string][]step{"i2": stepsIn(t, "i2", "b:starting")}, nil
	}
	for i := range 100 {
		turns, err := r.rollout.report(r.c, r.hash, "i1", stepsIn(t, "i1", "a:waits"), list)
		if (i == 0) != errors.Is(err, failing) || len(turns) > 0 {
			t.Fatalf("report %d: turns %q, %v", i, turns, err)
		}
	}
	if lists != 2 {
		t.Errorf("%d lists, want one that fails and one more", lists)
	}
	for _, instance := range []string{"i1", "i2", "i3"} {
		r.leave(types.NamespacedName{Namespace: "default", Name: "cam-" + instance})
	}
	for _, instance := range []string{"i1", "i2"} {
		r.of[theConfiguration].set(instance, nil)
	}
	if r.leave(theKey); len(r.of) > 0 {
		t.Errorf("%d states are left", len(r.of))
	}
}

// What pods show, and what is decided of them.
func TestStepsOfBrokers(t *testing.T) {
	young := func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(start.Add(-time.Second)) }
	ready := func(on string) func(*facts) *corev1.Pod { return brokerPod(on, "Ready") }
	type pods = []func(*facts) *corev1.Pod
	for name, tc := range map[string]struct {
		pods    pods
		refused int
		want    string
	}{
		"Ready":               {pods{ready("a"), ready("b")}, 0, "a:done b:done"},
		"of an earlier spec":  {pods{brokerPod("a", "Ready", former), ready("b")}, 0, "a:waits b:done"},
		"of other properties": {pods{brokerPod("a", "Ready", formerProperties), ready("b")}, 0, "a:waits/works b:done"},
		"going": {pods{brokerPod("a", "Ready", former, going), brokerPod("b", "Ready", going)}, 0,
			"a:starting b:starting"},
		"starts": {pods{brokerPod("a", "Starting", young), brokerPod("b", "Pending", young)}, 0,
			"a:starting b:starting after 59s"},
		"does not become Ready": {pods{brokerPod("a", "Starting"), ready("b")}, 0, "a:late b:done"},
		"failed":                {pods{brokerPod("a", "Failed", young), ready("b")}, 0, "a:late b:done after 1s"},
		"is made":               {pods{ready("b")}, 0, "a:starting b:done"},
		"is refused":            {pods{ready("b")}, 3, "a:late b:done after 4s"},
		"removed at once":       {pods{brokerPod("a", "Starting", former), ready("b")}, 0, "b:done"},
		"its node is not Ready": {pods{brokerPod("c", "Ready", former, going), ready("a"), ready("b")}, 0,
			"a:done b:done"},
		"surplus, and being made": {pods{brokerPod("a", "Ready", going), ready("b"), ready("d")}, 0,
			"a:starting b:done d:done"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFacts(t, configuration(2, onePod), "a b c! d", tc.pods...)
			if tc.refused > 0 {
				f.memory = memory{specHash: f.spec.hash, refused: tc.refused, refusedAt: start}
			}
			if name == "surplus, and being made" {
				f.reach = []string{"a", "b"}
			}
			p := decide(f)
			var words []string
			for _, st := range p.steps {
				for word, is := range phases {
					if is == st.phase {
						words = append(words, st.node+":"+word)
					}
				}
				if st.works && st.phase != done {
					words[len(words)-1] += "/works"
				}
				if (st.phase == waiting) != (st.pod != "") {
					t.Errorf("%+v: of a pod", st)
				}
			}
			if p.after > 0 {
				words = append(words, "after", p.after.String())
			}
			if got := strings.Join(words, " "); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
}

// A successor that does not become Ready is late after a minute, whatever the API server's clock says.
func TestLateByOneClock(t *testing.T) {
	for _, ahead := range []time.Duration{0, time.Hour, -time.Hour} {
		f := newFacts(t, configuration(1, onePod), "a", brokerPod("a", "Ready", former, going))
		m := decide(f).memory
		f = newFacts(t, configuration(1, onePod), "a", brokerPod("a", "Starting", func(p *corev1.Pod) {
			p.UID, p.CreationTimestamp = "new", metav1.NewTime(start.Add(ahead))
		}))
		for _, tc := range []struct {
			at    time.Duration
			phase phase
			again time.Duration
		}{{0, starting, time.Minute}, {59 * time.Second, starting, time.Second}, {time.Minute, late, 0}} {
			f.now, f.memory = start.Add(tc.at), m
			p := decide(f)
			m = p.memory
			if len(p.steps) != 1 || p.steps[0].phase != tc.phase || p.after != tc.again {
				t.Errorf("API server %s ahead, at %s: %+v, again after %s", ahead, tc.at, p.steps, p.after)
			}
		}
	}
}
