package devicepluginmode

import (
	"slices"
	"testing"
	"time"

	"github.com/kubeslot/kubeslot/kubecri/claims"
	"github.com/kubeslot/kubeslot/types/slot"
)

func TestDecideRelease(t *testing.T) {
	now := time.Unix(10_000, 0)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	h := func(index int, inUse bool, asked time.Time) held {
		return held{Holding: claims.Holding{Slot: slot.Name{Instance: "cam-000000", Index: index}, Used: inUse},
			resource: "akri.sh/cam", asked: asked}
	}
	for _, test := range []struct {
		name      string
		held      []held
		requested int64
		release   []int
		recheck   time.Duration
	}{
		{"in use", []held{h(0, true, ago(time.Hour))}, 1, nil, 0},
		{"in use, though no pod is known", []held{h(0, true, ago(time.Hour))}, 0, nil, 0},
		{"of a pod that is gone", []held{h(0, false, ago(3*time.Second))}, 0, []int{0}, 0},
		{"asked for just now, and the pod not known yet", []held{h(0, false, ago(500*time.Millisecond))}, 0, nil, 1500 * time.Millisecond},
		{"asked for, and refused", []held{h(0, false, time.Time{})}, 1, []int{0}, 0},
		{"of a pod whose image is pulled", []held{h(0, false, ago(time.Minute))}, 1, nil, refreshEvery},
		{"of a pod whose image is not to be had", []held{h(0, false, ago(24*time.Hour))}, 1, nil, refreshEvery},
		{"of such a pod, once it is gone", []held{h(0, false, ago(24*time.Hour))}, 0, []int{0}, 0},
		{"left over from a pod, while all others have theirs", []held{h(0, true, ago(time.Hour)), h(1, false, ago(time.Minute))}, 1, []int{1}, 0},
		{"of several, as many as are requested, those asked for last", []held{h(0, false, ago(5*time.Minute)), h(1, false, ago(time.Minute)), h(2, false, ago(2*time.Minute))}, 2,
			[]int{0}, refreshEvery},
		{"what was asked for just now counts as requested", []held{h(0, false, ago(time.Second)), h(1, false, ago(time.Minute))}, 1, []int{1}, time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			release, recheck := decideRelease(test.held, map[string]int64{"akri.sh/cam": test.requested}, now)
			var indices []int
			for _, h := range release {
				indices = append(indices, h.Slot.Index)
			}
			if !slices.Equal(indices, test.release) || recheck != test.recheck {
				t.Errorf("releases %v and looks again after %s, want %v and %s", indices, recheck, test.release, test.recheck)
			}
		})
	}
}
