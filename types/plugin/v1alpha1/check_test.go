package v1alpha1

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/contain"
)

// What a plugin changes in a pod is taken over whole, or not at all.
func TestPodChanges(t *testing.T) {
	pod := &types.PodInfo{RunningContainers: map[string]types.ContainerInfo{
		"main": {Requests: types.ResourceList{"r": 1}, DevRequests: types.ResourceList{"r": 1}},
		"side": {DevRequests: types.ResourceList{"s": 1}}}}
	long := map[string]int64{}
	for i := range 100 {
		long[fmt.Sprintf("%d/%s", i, strings.Repeat("x", maxChanges/100))] = 1
	}
	for name, tc := range map[string]struct {
		container string
		change    *ContainerChanges
		err       string
	}{
		"good": {"main", &ContainerChanges{
			DevRequests: map[string]int64{"r/0": 1}, AllocateFrom: map[string]string{"r/0": "r/7"}}, ""},
		"nothing left": {"main", nil, ""},
		"negative": {"main", &ContainerChanges{DevRequests: map[string]int64{"r": -1}},
			`-1 of "r" for container "main"`},
		"no name": {"main", &ContainerChanges{DevRequests: map[string]int64{"": 1}}, `1 of "" for`},
		"nothing allocated": {"main", &ContainerChanges{AllocateFrom: map[string]string{"r": ""}},
			`meets "r" of container "main" with ""`},
		"too long":           {"main", &ContainerChanges{DevRequests: long}, "of 65536 that they may"},
		"another container":  {"other", &ContainerChanges{}, `container "other", which the pod does not have`},
		"a long name":        {strings.Repeat("x", maxChanges/2), nil, "which the pod does not have"},
		"a very long name":   {strings.Repeat("x", 1<<20), nil, "of 65536 that they may"},
		"not init container": {"init", nil, "which the pod does not have"},
	} {
		t.Run(name, func(t *testing.T) {
			changes := &PodChanges{RunningContainers: map[string]*ContainerChanges{tc.container: tc.change}}
			got, err := changes.ChangeIn(pod)
			if tc.err != "" {
				if !errors.Is(err, contain.ErrInvalid) || !strings.Contains(err.Error(), tc.err) ||
					len(err.Error()) > 1000 {
					t.Errorf("error %.1000v, want %q", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			main, want := got.RunningContainers["main"], tc.change.GetAllocateFrom()["r/0"]
			if len(main.DevRequests) != len(tc.change.GetDevRequests()) || string(main.AllocateFrom["r/0"]) != want ||
				main.Requests["r"] != 1 || got.RunningContainers["side"].DevRequests["s"] != 1 ||
				pod.RunningContainers["main"].DevRequests["r"] != 1 {
				t.Errorf("the pod became %+v", got)
			}
		})
	}
}

func TestVerdict(t *testing.T) {
	reason := func(change func(*Reason)) *Verdict {
		r := &Reason{Text: "no more", Resource: "r", Requested: 1}
		change(r)
		return &Verdict{Reasons: []*Reason{r}}
	}
	for name, tc := range map[string]struct {
		verdict *Verdict
		good    bool
	}{
		"fits":              {&Verdict{Fits: true, Score: 0.5}, true},
		"missing":           {nil, true},
		"a reason":          {reason(func(*Reason) {}), true},
		"not a number":      {&Verdict{Score: math.NaN()}, false},
		"infinite":          {&Verdict{Score: math.Inf(1)}, false},
		"negative":          {&Verdict{Score: -0.5}, false},
		"many reasons":      {&Verdict{Reasons: make([]*Reason, maxReasons+1)}, false},
		"a long reason":     {reason(func(r *Reason) { r.Text = strings.Repeat("x", maxReason+1) }), false},
		"a long resource":   {reason(func(r *Reason) { r.Resource = strings.Repeat("x", maxReason+1) }), false},
		"negative request":  {reason(func(r *Reason) { r.Requested = -1 }), false},
		"negative use":      {reason(func(r *Reason) { r.Used = -1 }), false},
		"negative capacity": {reason(func(r *Reason) { r.Capacity = -1 }), false},
	} {
		if err := (&FitResponse{Verdicts: []*Verdict{tc.verdict}}).Check(1); (err == nil) != tc.good || err != nil &&
			!errors.Is(err, contain.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestResources(t *testing.T) {
	for resource, good := range map[string]bool{
		"example.com/x": true, "example.com/*": true, "*": true, "": false, "a*b": false,
		strings.Repeat("x", maxResource+1): false} {
		if err := (&SchedulerStartResponse{Resources: []string{resource}}).Check(); (err == nil) != good {
			t.Errorf("%.20q: %v", resource, err)
		}
	}
	for _, n := range []int{0, maxResources + 1} {
		said := &SchedulerStartResponse{Resources: slices.Repeat([]string{"x"}, n)}
		if err := said.Check(); !errors.Is(err, contain.ErrInvalid) {
			t.Errorf("%d resources: %v", n, err)
		}
	}
}
