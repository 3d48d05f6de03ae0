package claims

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/component-base/metrics/testutil"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/client/clientset/versioned/fake"
	"github.com/kubeslot/kubeslot/types/slot"
)

var instances = akriv0.SchemeGroupVersion.WithResource("instances")

// api is an API server that applies JSON patches as the real one does.
type api struct {
	*fake.Clientset
	*Writer
	seen    []*akriv0.Instance
	patches int
	gets    int
	// before and after a patch is applied; an error is the call's answer.
	before, after func() error
	// read is called ahead of each get.
	read func() error
}

func newAPI(t *testing.T, in ...*akriv0.Instance) *api {
	t.Helper()
	RegisterMetrics()
	a := &api{Clientset: fake.NewSimpleClientset()}
	a.Writer = &Writer{Client: a, Seen: func(in *akriv0.Instance) { a.seen = append(a.seen, in) }}
	for _, in := range in {
		if err := a.Tracker().Add(in.DeepCopy()); err != nil {
			t.Fatal(err)
		}
	}
	apply := clienttesting.ObjectReaction(a.Tracker())
	a.PrependReactor("patch", "instances", func(action clienttesting.Action) (bool, runtime.Object, error) {
		a.patches++
		if a.before != nil {
			if err := a.before(); err != nil {
				return true, nil, err
			}
		}
		_, obj, err := apply(action)
		if apierrors.IsNotFound(err) {
			return true, nil, err
		}
		if err != nil {
			return true, nil, apierrors.NewGenericServerResponse(422, "patch", instances.GroupResource(), "", err.Error(), 0, false)
		}
		in := obj.(*akriv0.Instance)
		n, _ := strconv.Atoi(in.ResourceVersion)
		in.ResourceVersion = strconv.Itoa(n + 1)
		if err := a.Tracker().Update(instances, in, in.Namespace); err != nil {
			return true, nil, err
		}
		if a.after != nil {
			if err := a.after(); err != nil {
				return true, nil, err
			}
		}
		return true, in, nil
	})
	a.PrependReactor("get", "instances", func(clienttesting.Action) (bool, runtime.Object, error) {
		a.gets++
		if a.read != nil {
			if err := a.read(); err != nil {
				return true, nil, err
			}
		}
		return false, nil, nil
	})
	return a
}

// usage returns what is stored.
func (a *api) usage(t *testing.T) map[string]string {
	t.Helper()
	got, err := a.Tracker().Get(instances, "default", "cam-1")
	if err != nil {
		t.Fatal(err)
	}
	return got.(*akriv0.Instance).Spec.DeviceUsage
}

// write changes what is stored, as somebody else does.
func (a *api) write(t *testing.T, slot, value string) {
	t.Helper()
	got, err := a.Tracker().Get(instances, "default", "cam-1")
	if err != nil {
		t.Fatal(err)
	}
	in := got.(*akriv0.Instance).DeepCopy()
	if in.Spec.DeviceUsage == nil {
		in.Spec.DeviceUsage = map[string]string{}
	}
	in.Spec.DeviceUsage[slot] = value
	n, _ := strconv.Atoi(in.ResourceVersion)
	in.ResourceVersion = strconv.Itoa(n + 1)
	if err := a.Tracker().Update(instances, in, in.Namespace); err != nil {
		t.Fatal(err)
	}
}

// times returns a function that returns the error the first n times.
func times(n int, err error) func() error {
	return func() error {
		if n--; n < 0 {
			return nil
		}
		return err
	}
}

func counted(t *testing.T, result string) float64 {
	t.Helper()
	n, err := testutil.GetCounterMetricValue(taken.WithLabelValues(result))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestTakeWritesOnce(t *testing.T) {
	for form, usage := range map[string]map[string]string{
		"listed": {"cam-1-0": "", "cam-1-1": ""}, "sparse": {"cam-1-9": "b"}, "none": nil,
	} {
		t.Run(form, func(t *testing.T) {
			in := cam(usage)
			a := newAPI(t, in)
			before := counted(t, "claimed")
			if err := a.Take(t.Context(), in, Claim{name(0): {Node: "a", Holder: "u1"}, name(1): {Node: "a"}}); err != nil {
				t.Fatal(err)
			}
			if got := a.usage(t); got["cam-1-0"] != "C:u1:a" || got["cam-1-1"] != "a" {
				t.Errorf("deviceUsage %v", got)
			}
			if a.patches != 1 || a.gets != 0 || counted(t, "claimed")-before != 2 {
				t.Errorf("%d patches, %d gets, %v counted", a.patches, a.gets, counted(t, "claimed")-before)
			}
		})
	}
}

// Somebody writes between what was seen and the claim.
func TestTakeFromACopyThatIsOld(t *testing.T) {
	for _, test := range []struct {
		name    string
		now     map[string]string // what the API server has
		seen    map[string]string
		held    bool
		patches int
	}{
		{name: "another slot was taken: no conflict", now: map[string]string{"cam-1-0": "", "cam-1-1": "b"}, seen: map[string]string{"cam-1-0": "", "cam-1-1": ""}, patches: 1},
		{name: "the slot was taken", now: map[string]string{"cam-1-0": "C:u2:b"}, seen: map[string]string{"cam-1-0": ""}, held: true, patches: 1},
		{name: "the entry was removed", now: map[string]string{"cam-1-1": "b"}, seen: map[string]string{"cam-1-0": ""}, patches: 2},
		{name: "the slot was given back", now: map[string]string{"cam-1-0": ""}, seen: map[string]string{"cam-1-0": "C:u2:b"}, patches: 1},
		{name: "the pod's own claim of before was given back", now: map[string]string{"cam-1-0": ""}, seen: map[string]string{"cam-1-0": "C:u1:a"}, patches: 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := newAPI(t, cam(test.now))
			err := a.Take(t.Context(), cam(test.seen), cl(0))
			var held *Held
			if errors.As(err, &held) != test.held || (err != nil) != test.held || a.patches != test.patches {
				t.Fatalf("%v after %d patches", err, a.patches)
			}
			want := "C:u1:a"
			if test.held {
				want = "C:u2:b"
				if len(a.seen) != 1 || a.seen[0].Spec.DeviceUsage["cam-1-0"] != want {
					t.Errorf("the ledger was told %v", a.seen)
				}
			}
			if got := a.usage(t)["cam-1-0"]; got != want {
				t.Errorf("deviceUsage %q, want %q", got, want)
			}
		})
	}
}

func TestTakeOfAnInstanceThatIsGone(t *testing.T) {
	var held *Held
	if err := newAPI(t).Take(t.Context(), cam(nil), cl(0)); !errors.As(err, &held) || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("gone: %v", err)
	}
	again := cam(nil)
	again.UID, again.Spec.Capacity = "i2", 1
	if err := newAPI(t, again).Take(t.Context(), cam(nil), cl(1)); !errors.As(err, &held) {
		t.Errorf("made again, smaller: %v", err)
	}
}

// Answers are lost: the claim is made, once, whichever attempt was applied.
func TestTakeWithLostAnswers(t *testing.T) {
	reset := errors.New("connection reset")
	for _, claim := range []Claim{cl(0), il(0)} {
		for name, lose := range map[string]func(*api){
			"applied":                     func(a *api) { a.after = times(1, reset) },
			"not applied":                 func(a *api) { a.before = times(1, reset) },
			"timed out and applied":       func(a *api) { a.after = times(1, apierrors.NewTimeoutError("etcd", 1)) },
			"applied, and no word for it": func(a *api) { a.after, a.read = times(1, reset), times(3, reset) },
			"several times":               func(a *api) { a.before, a.after, a.read = times(2, reset), times(1, reset), times(2, reset) },
		} {
			t.Run(fmt.Sprint(claim, name), func(t *testing.T) {
				in := cam(nil)
				a := newAPI(t, in)
				lose(a)
				if err := a.Take(t.Context(), in, claim); err != nil {
					t.Fatal(err)
				}
				if got := a.usage(t)["cam-1-0"]; got != claim[slot.Name{Instance: "cam-1"}].String() {
					t.Errorf("deviceUsage %q", got)
				}
			})
		}
	}
}

func TestTakeGivesUp(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	ends := func() error { end(); return errors.New("connection reset") }
	fails := func(err error) func() error { return func() error { return err } }
	for name, test := range map[string]struct {
		ctx     context.Context
		before  func() error
		want    string
		patches int
	}{
		"without the right":       {t.Context(), fails(apierrors.NewForbidden(instances.GroupResource(), "cam-1", errors.New("no"))), "deploy/scheduler-claims", 1},
		"refused again and again": {t.Context(), fails(apierrors.NewInvalid(akriv0.SchemeGroupVersion.WithKind("Instance").GroupKind(), "cam-1", nil)), "default/cam-1", maxRefusals},
		"when the scheduler ends": {ctx, ends, "connection reset", 1},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAPI(t, cam(nil))
			a.before = test.before
			var held *Held
			err := a.Take(test.ctx, cam(nil), cl(0))
			if err == nil || errors.As(err, &held) || !strings.Contains(err.Error(), test.want) || a.patches != test.patches {
				t.Errorf("%v after %d patches", err, a.patches)
			}
		})
	}
}

func TestRelease(t *testing.T) {
	in := cam(nil)
	a := newAPI(t, in)
	claim := Claim{name(0): {Node: "a", Holder: "u1"}, name(1): {Node: "a"}}
	if err := a.Take(t.Context(), in, claim); err != nil {
		t.Fatal(err)
	}
	a.write(t, "cam-1-1", "C:u2:b")
	a.before, a.read = times(1, errors.New("connection reset")), times(2, errors.New("connection refused"))
	if err := a.Release(t.Context(), in, claim); err != nil {
		t.Fatal(err)
	}
	if got := a.usage(t); got["cam-1-0"] != "" || got["cam-1-1"] != "C:u2:b" {
		t.Errorf("deviceUsage %v", got)
	}
	if last := a.seen[len(a.seen)-1]; last.Spec.DeviceUsage["cam-1-0"] != "" {
		t.Errorf("released, and the ledger was last told %v", last.Spec.DeviceUsage)
	}
	if err := newAPI(t).Release(t.Context(), in, claim); err != nil {
		t.Errorf("of an Instance that is gone: %v", err)
	}
}

// A stray claim is released only if nothing has happened to its Instance since it
// was found to be one: its pod may be about to be bound with it.
func TestReleaseStray(t *testing.T) {
	in := cam(map[string]string{"cam-1-0": "C:u1:a"})
	a := newAPI(t, in)
	a.write(t, "cam-1-1", "C:u2:b")
	if err := a.ReleaseStray(t.Context(), in, cl(0)); err == nil || a.usage(t)["cam-1-0"] != "C:u1:a" {
		t.Errorf("changed since: %v, deviceUsage %v", err, a.usage(t))
	}
	now, err := a.AkriV0().Instances("default").Get(t.Context(), "cam-1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.ReleaseStray(t.Context(), now, cl(0)); err != nil || a.usage(t)["cam-1-0"] != "" || a.usage(t)["cam-1-1"] != "C:u2:b" {
		t.Errorf("%v, deviceUsage %v", err, a.usage(t))
	}
}

// Of many that want the same few slots, each slot goes to one.
func TestManyWriters(t *testing.T) {
	in := cam(nil)
	a := newAPI(t, in)
	a.Writer.Seen = func(*akriv0.Instance) {}
	const writers = 12
	won := make([][]int, writers)
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for index := range 2 {
				err := a.Take(t.Context(), in, Claim{name(index): {Node: "a", Holder: fmt.Sprint("u", w)}})
				var held *Held
				switch {
				case err == nil:
					won[w] = append(won[w], index)
				case !errors.As(err, &held):
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	winners := map[string]string{}
	for w, slots := range won {
		for _, index := range slots {
			if other := winners[name(index).String()]; other != "" {
				t.Errorf("slot %d went to u%d and to %s", index, w, other)
			}
			winners[name(index).String()] = fmt.Sprintf("C:u%d:a", w)
		}
	}
	for slot, value := range a.usage(t) {
		if winners[slot] != value {
			t.Errorf("slot %s is %q, and its winner %q", slot, value, winners[slot])
		}
	}
	if len(winners) != 2 {
		t.Errorf("winners: %v", winners)
	}
}
