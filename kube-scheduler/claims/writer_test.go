package claims

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/utils/clock"

	"github.com/kubeslot/kubeslot/kube-scheduler/claims/claimstest"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// rig is a Writer, and the API server that it writes to.
type rig struct {
	*Writer
	*claimstest.API
}

func newRig() *rig {
	RegisterMetrics()
	api := claimstest.New()
	return &rig{&Writer{Client: api, Clock: clock.RealClock{}}, api}
}

// holders are who has the slots 0 to 9, by what is stored; "" for nobody.
func (r *rig) holders() string {
	var all []string
	for i := range 10 {
		if c := r.Claim(fmt.Sprint("cam-8120fe-", i)); c != nil {
			all = append(all, fmt.Sprint(i, " ", c.Spec.Holder))
		}
	}
	return strings.Join(all, ", ")
}

// on makes a hook that answers the first n calls of the verb for a slot of cam-8120fe with the error.
func on(verb, index string, n int, err error) func(string, string) error {
	return func(v, name string) error {
		if v != verb || name != "cam-8120fe-"+index || n == 0 {
			return nil
		}
		n--
		return err
	}
}

var (
	errReset  = errors.New("connection reset")
	forbidden = apierrors.NewForbidden(claimstest.Claims.GroupResource(), "cam-8120fe-0", errors.New("no"))
	invalid   = apierrors.NewInvalid(v1alpha1.SchemeGroupVersion.WithKind("SlotClaim").GroupKind(), "cam-8120fe-0", nil)
	forever   = 1 << 30
)

func counted(t *testing.T, c metrics.CounterMetric) float64 {
	t.Helper()
	n, err := testutil.GetCounterMetricValue(c)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestTakeIsOneWriteASlot(t *testing.T) {
	r := newRig()
	before := counted(t, taken.WithLabelValues("claimed"))
	got, err := r.Take(t.Context(), of("p", "a", "0", "1", "!2"))
	if err != nil || len(got) != 3 || r.holders() != "0 p-uid, 1 p-uid, 2 p-uid" || len(r.Actions()) != 3 {
		t.Errorf("%v; held: %s, after %d calls", err, r.holders(), len(r.Actions()))
	}
	for _, c := range got {
		if c.UID == "" {
			t.Errorf("claim %s is not as the API server has it", c.Name)
		}
	}
	if n := counted(t, taken.WithLabelValues("claimed")) - before; n != 3 {
		t.Errorf("%v are counted, want 3", n)
	}
}

// A slot that is claimed already is the pod's only if it was claimed for it, on that
// node, and through the same request; else the error says whose it is, the ledger is
// told, and what else was claimed is given back.
func TestTakeOfAClaimedSlot(t *testing.T) {
	plugin := of("p", "b", "1")[0]
	plugin.Spec.Pod, plugin.Spec.Holder = nil, "virtual-7"
	for name, test := range map[string]struct {
		claim *v1alpha1.SlotClaim // of slot 1
		held  string              // a part of the error; "" when the slot is the pod's
	}{
		"for the pod":                        {of("p", "a", "1")[0], ""},
		"for the pod, on another node":       {of("p", "b", "1")[0], "cam-8120fe-1 is claimed by pod default/p (UID p-uid) on node b"},
		"for the pod, for another container": {func() *v1alpha1.SlotClaim { c := of("p", "a", "1")[0]; c.Spec.Container = "warm"; return c }(), ""},
		"for the pod, through its Instance":  {of("p", "a", "!1")[0], "by pod default/p"},
		"for another pod":                    {of("q", "a", "1")[0], "by pod default/q (UID q-uid) on node a"},
		"by a device plugin":                 {plugin, "by holder virtual-7 on node b"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig()
			r.Put(test.claim)
			_, err := r.Take(t.Context(), of("p", "a", "0", "1", "2"))
			var held *Held
			if errors.As(err, &held) != (test.held != "") || err != nil && !strings.Contains(err.Error(), test.held) {
				t.Fatalf("error %v, want one with %q", err, test.held)
			}
			want := "1 " + test.claim.Spec.Holder
			if held == nil {
				want = "0 p-uid, 1 p-uid, 2 p-uid"
			}
			if r.holders() != want {
				t.Errorf("held: %s, want %s", r.holders(), want)
			}
		})
	}
}

// A claim of the pod that was there before is its node's: it was made again for a container that runs,
// or a scheduler before this one made it, and then bound the pod. A pod that is not bound after all, or
// that does not get another of its slots, leaves it alone.
func TestReleaseOfWhatOthersMade(t *testing.T) {
	again := of("p", "a", "0")[0]
	again.Spec.MadeAgain = true
	former := of("p", "a", "0")[0]
	former.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: fieldManager}}
	for name, c := range map[string]*v1alpha1.SlotClaim{"made again by its node": again, "by a former scheduler": former} {
		t.Run(name+", not bound", func(t *testing.T) {
			r := newRig()
			r.Put(c)
			got, err := r.Take(t.Context(), of("p", "a", "0", "1"))
			if err == nil {
				err = r.Release(t.Context(), got)
			}
			if err != nil || r.holders() != "0 p-uid" {
				t.Errorf("%v; held: %q, want slot 0", err, r.holders())
			}
		})
		t.Run(name+", another slot is held", func(t *testing.T) {
			r := newRig()
			r.Put(c)
			r.Put(of("q", "b", "1")[0])
			if _, err := r.Take(t.Context(), of("p", "a", "0", "1")); err == nil || r.holders() != "0 p-uid, 1 q-uid" {
				t.Errorf("%v; held: %q, want what was held before", err, r.holders())
			}
		})
	}
	t.Run("made again by its node, while the answer to a create is lost", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig()
			r.Before = func(verb, _ string) error {
				if verb == "create" && r.Claim(again.Name) == nil {
					r.Put(again)
					return errReset
				}
				return nil
			}
			got, err := r.Take(t.Context(), of("p", "a", "0"))
			if err == nil {
				err = r.Release(t.Context(), got)
			}
			if err != nil || r.holders() != "0 p-uid" {
				t.Errorf("%v; held: %q, want slot 0", err, r.holders())
			}
		})
	})
}

// A slot that is released between the attempt to create its claim and the look at whose it is, or
// whose claim is being deleted, is claimed anew.
func TestTakeOfASlotThatIsBeingReleased(t *testing.T) {
	t.Run("by another", func(t *testing.T) {
		r := newRig()
		r.Put(of("q", "b", "0")[0])
		r.Before = func(verb, name string) error {
			if verb == "get" {
				r.Remove(name)
			}
			return nil
		}
		if _, err := r.Take(t.Context(), of("p", "a", "0")); err != nil || r.holders() != "0 p-uid" {
			t.Errorf("%v; held: %s", err, r.holders())
		}
	})
	t.Run("by the pod's former attempt", func(t *testing.T) {
		r := newRig()
		going := of("p", "a", "0")[0]
		going.DeletionTimestamp, going.Finalizers = &metav1.Time{}, []string{"foregroundDeletion"}
		former, looks := r.Put(going), 0
		r.Before = func(verb, name string) error {
			if verb == "get" {
				looks++
			}
			if looks == 2 {
				r.Remove(name)
				looks++
			}
			return nil
		}
		if got, err := r.Take(t.Context(), of("p", "a", "0")); err != nil || got[0].UID == former.UID {
			t.Errorf("%v, got %v", err, got)
		}
	})
}

// Answers are lost: the slot is claimed once, whichever attempt was applied.
func TestTakeWithLostAnswers(t *testing.T) {
	for name, lose := range map[string]func(*rig){
		"applied":                     func(r *rig) { r.After = on("create", "0", 1, errReset) },
		"not applied":                 func(r *rig) { r.Before = on("create", "0", 1, errReset) },
		"timed out and applied":       func(r *rig) { r.After = on("create", "0", 1, apierrors.NewTimeoutError("etcd", 1)) },
		"applied, and no word for it": func(r *rig) { r.After = on("create", "0", 1, errReset); r.Before = on("get", "0", 3, errReset) },
		"several times":               func(r *rig) { r.Before = on("create", "0", 2, errReset); r.After = on("create", "0", 1, errReset) },
		"too many requests":           func(r *rig) { r.Before = on("create", "0", 3, apierrors.NewTooManyRequests("later", 1)) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig()
				lose(r)
				got, err := r.Take(t.Context(), of("p", "a", "0"))
				if err != nil || r.holders() != "0 p-uid" || got[0].UID != r.Claim("cam-8120fe-0").UID {
					t.Errorf("%v; held: %s, got %v", err, r.holders(), got)
				}
			})
		})
	}
}

// When a claim fails for good, nothing is left of the pod's others, whatever became of
// them.
func TestTakeGivesUp(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	for name, test := range map[string]struct {
		ctx           context.Context
		before, after func(verb, name string) error
		want          string
		creations     int // at least; of slot 0
	}{
		"without the right": {before: on("create", "0", forever, forbidden), want: "kubectl apply -k deploy/scheduler-claims", creations: 1},
		"by a policy":       {before: on("create", "0", forever, invalid), want: "create SlotClaim cam-8120fe-0", creations: 1},
		"without an answer": {before: on("create", "0", forever, errReset), want: "connection reset", creations: 10},
		"without an answer, though applied": {after: on("create", "0", forever, errReset), before: on("create", "1", forever, invalid),
			want: "create SlotClaim", creations: 1},
		"when the scheduler ends": {ctx: ctx, before: func(verb, name string) error {
			if verb == "create" {
				end()
				return errReset
			}
			return nil
		}, want: "context canceled", creations: 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig()
				r.Before, r.After = test.before, test.after
				if test.ctx == nil {
					test.ctx = t.Context()
				}
				failed := counted(t, taken.WithLabelValues("failed"))
				_, err := r.Take(test.ctx, of("p", "a", "0", "1", "2"))
				var held *Held
				if err == nil || errors.As(err, &held) || !strings.Contains(err.Error(), test.want) || r.Calls("create") < test.creations {
					t.Errorf("error %v, want one with %q; %d creations", err, test.want, r.Calls("create"))
				}
				if r.holders() != "" {
					t.Errorf("left behind: %s", r.holders())
				}
				if got := counted(t, taken.WithLabelValues("failed")) - failed; got != 3 {
					t.Errorf("%v counted as failed, want 3", got)
				}
			})
		})
	}
}

// A call that waits for its turn when the scheduler ends is not made.
func TestTakeWithoutATurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		r.once.Do(func() { r.calls = make(chan struct{}) }) // no turn ever comes
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := r.Take(ctx, of("p", "a", "0")); !errors.Is(err, context.DeadlineExceeded) || len(r.Actions()) != 0 {
			t.Errorf("%v, after %d calls", err, len(r.Actions()))
		}
	})
}

func TestRelease(t *testing.T) {
	for name, prepare := range map[string]func(*rig){
		"":                       func(*rig) {},
		"lost, not applied":      func(r *rig) { r.Before = on("delete", "0", 3, errReset) },
		"lost, applied":          func(r *rig) { r.After = on("delete", "0", 3, errReset) },
		"gone already":           func(r *rig) { r.Remove("cam-8120fe-0") },
		"after the scheduler":    func(*rig) {},
		"another has it by now":  func(r *rig) { r.Remove("cam-8120fe-0"); r.Put(of("q", "b", "0")[0]) },
		"the pod has another by": func(r *rig) { r.Remove("cam-8120fe-0"); r.Put(of("p", "a", "0")[0]) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig()
				got, err := r.Take(t.Context(), of("p", "a", "0", "1"))
				if err != nil {
					t.Fatal(err)
				}
				prepare(r)
				want := ""
				if c := r.Claim("cam-8120fe-0"); c != nil && c.UID != got[0].UID {
					want = "0 " + c.Spec.Holder
				}
				ctx, end := context.WithCancel(t.Context())
				if name == "after the scheduler" {
					end()
				}
				defer end()
				if err := r.Release(ctx, got); err != nil || r.holders() != want {
					t.Errorf("%v; held: %q, want %q", err, r.holders(), want)
				}
			})
		})
	}
	t.Run("without the right", func(t *testing.T) {
		r := newRig()
		r.Before = on("delete", "0", forever, forbidden)
		got := []*v1alpha1.SlotClaim{r.Put(of("p", "a", "0")[0])}
		if err := r.Release(t.Context(), got); err == nil || !strings.Contains(err.Error(), "deploy/scheduler-claims") {
			t.Errorf("error %v", err)
		}
	})
}

// Of many that want the same few slots, each slot goes to one; and a pod that wants
// two has both or none.
func TestManyWriters(t *testing.T) {
	r := newRig()
	const writers, slots = 12, 4
	won := make([][]*v1alpha1.SlotClaim, writers)
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			got, err := r.Take(t.Context(), of(fmt.Sprint("p", w), "a", fmt.Sprint(w%slots), fmt.Sprint((w+1)%slots)))
			var held *Held
			if err != nil && !errors.As(err, &held) {
				t.Error(err)
			}
			won[w] = got
		})
	}
	all.Wait()
	var want []string
	for w, claims := range won {
		for _, c := range claims {
			want = append(want, fmt.Sprint(strings.TrimPrefix(c.Name, "cam-8120fe-"), " p", w, "-uid"))
		}
	}
	slices.Sort(want)
	if got := r.holders(); got != strings.Join(want, ", ") {
		t.Errorf("held: %s, won: %v", got, want)
	}
}
