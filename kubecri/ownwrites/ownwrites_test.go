package ownwrites

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// at is a slice as "name uid resourceVersion".
func at(text string) *v1alpha1.DeviceSlice {
	f := strings.Fields(text)
	return &v1alpha1.DeviceSlice{ObjectMeta: metav1.ObjectMeta{Name: f[0], UID: types.UID(f[1]), ResourceVersion: f[2]}}
}

// What counts is the newer of what was written and what the cache shows.
func TestOwnWritesAreKnownBeforeTheCacheShowsThem(t *testing.T) {
	for _, c := range []struct {
		name   string
		do     func(o *Writes[*v1alpha1.DeviceSlice], clock *testingclock.FakeClock)
		cached []string
		want   []string
	}{
		{name: "nothing was written", cached: []string{"n-0 a 5"}, want: []string{"n-0 a 5"}},
		{name: "made, not shown", do: func(o *Writes[*v1alpha1.DeviceSlice],
			_ *testingclock.FakeClock) {
			o.Wrote(at("n-0 a 5"))
		}, want: []string{"n-0 a 5"}},
		{name: "updated, the version before is shown",
			do:     func(o *Writes[*v1alpha1.DeviceSlice], _ *testingclock.FakeClock) { o.Wrote(at("n-0 a 10")) },
			cached: []string{"n-0 a 9", "n-1 b 3"}, want: []string{"n-1 b 3", "n-0 a 10"}},
		{name: "updated twice, the first is shown",
			do: func(o *Writes[*v1alpha1.DeviceSlice], _ *testingclock.FakeClock) {
				o.Wrote(at("n-0 a 6"))
				o.Wrote(at("n-0 a 8"))
			},
			cached: []string{"n-0 a 6"}, want: []string{"n-0 a 8"}},
		{name: "somebody has changed it since", do: func(o *Writes[*v1alpha1.DeviceSlice],
			_ *testingclock.FakeClock) {
			o.Wrote(at("n-0 a 6"))
		},
			cached: []string{"n-0 a 7"}, want: []string{"n-0 a 7"}},
		{name: "deleted, still shown", do: func(o *Writes[*v1alpha1.DeviceSlice],
			_ *testingclock.FakeClock) {
			o.Deleted("n-0", "a")
		}, cached: []string{"n-0 a 6"}},
		{name: "deleted and made again, the first is shown",
			do: func(o *Writes[*v1alpha1.DeviceSlice], _ *testingclock.FakeClock) {
				o.Deleted("n-0", "a")
				o.Wrote(at("n-0 b 8"))
			}, cached: []string{"n-0 a 6"}, want: []string{"n-0 b 8"}},
		{name: "deleted, and somebody has made it again",
			do:     func(o *Writes[*v1alpha1.DeviceSlice], _ *testingclock.FakeClock) { o.Deleted("n-0", "a") },
			cached: []string{"n-0 b 8"}, want: []string{"n-0 b 8"}},
		{name: "made, and deleted by somebody", do: func(o *Writes[*v1alpha1.DeviceSlice], _ *testingclock.FakeClock) {
			o.Wrote(at("n-0 a 5"))
			o.Gone("n-0", "a")
		}},
		{name: "made, and the answer comes after somebody's deletion",
			do: func(o *Writes[*v1alpha1.DeviceSlice], _ *testingclock.FakeClock) {
				o.Gone("n-0", "a")
				o.Wrote(at("n-0 a 5"))
			}},
		{name: "made again, and the cache loses the one before",
			do: func(o *Writes[*v1alpha1.DeviceSlice], _ *testingclock.FakeClock) {
				o.Wrote(at("n-0 b 5"))
				o.Gone("n-0", "a")
			}, want: []string{"n-0 b 5"}},
		{name: "made, and never shown", do: func(o *Writes[*v1alpha1.DeviceSlice], clock *testingclock.FakeClock) {
			o.Wrote(at("n-0 a 5"))
			clock.Step(ShownWithin)
		}},
		{name: "deleted, and shown for long", do: func(o *Writes[*v1alpha1.DeviceSlice],
			clock *testingclock.FakeClock) {
			o.Deleted("n-0", "a")
			clock.Step(ShownWithin)
		}, cached: []string{"n-0 a 5"}, want: []string{"n-0 a 5"}},
		{name: "the API server was restored from a backup",
			do: func(o *Writes[*v1alpha1.DeviceSlice], clock *testingclock.FakeClock) {
				o.Wrote(at("n-0 a 900"))
				clock.Step(ShownWithin)
			}, cached: []string{"n-0 a 7"}, want: []string{"n-0 a 7"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			clock := testingclock.NewFakeClock(time.Now())
			o := New[*v1alpha1.DeviceSlice](clock)
			if c.do != nil {
				c.do(o, clock)
			}
			var cached []*v1alpha1.DeviceSlice
			for _, text := range c.cached {
				cached = append(cached, at(text))
			}
			var got []string
			for _, s := range o.Merge(cached) {
				got = append(got, s.Name+" "+string(s.UID)+" "+s.ResourceVersion)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("slices %q, want %q", got, c.want)
			}
		})
	}
}

// What was written is looked at again when it is forgotten, and then no more.
func TestWhatIsForgottenIsLookedAt(t *testing.T) {
	clock := testingclock.NewFakeClock(time.Now())
	o := New[*v1alpha1.DeviceSlice](clock)
	if _, ok := o.Forgets(); ok {
		t.Error("nothing was written, and it is forgotten")
	}
	o.Wrote(at("n-0 a 5"))
	clock.Step(20 * time.Second)
	o.Deleted("n-1", "b")
	if after, ok := o.Forgets(); !ok || after != ShownWithin-20*time.Second {
		t.Errorf("forgets the first after %s, %v", after, ok)
	}
	clock.Step(ShownWithin)
	if after, ok := o.Forgets(); ok {
		t.Errorf("after all that it forgets something in %s", after)
	}
}
