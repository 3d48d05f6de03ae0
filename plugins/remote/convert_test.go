package remote

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/contain"
	pb "github.com/kubeslot/kubeslot/types/plugin/v1alpha1"
)

// What a plugin changes in a pod is taken over whole, or not at all.
func TestChanged(t *testing.T) {
	pod := &types.PodInfo{RunningContainers: map[string]types.ContainerInfo{
		"main": {Requests: types.ResourceList{"r": 1}, DevRequests: types.ResourceList{"r": 1}},
		"side": {DevRequests: types.ResourceList{"s": 1}}}}
	long := map[string]int64{}
	for i := range 100 {
		long[fmt.Sprintf("%d/%s", i, strings.Repeat("x", maxChanges/100))] = 1
	}
	for name, tc := range map[string]struct {
		container string
		change    *pb.ContainerChanges
		err       string
	}{
		"good": {"main", &pb.ContainerChanges{
			DevRequests: map[string]int64{"r/0": 1}, AllocateFrom: map[string]string{"r/0": "r/7"}}, ""},
		"nothing left": {"main", nil, ""},
		"negative": {"main", &pb.ContainerChanges{DevRequests: map[string]int64{"r": -1}},
			`-1 of "r" for container "main"`},
		"no name": {"main", &pb.ContainerChanges{DevRequests: map[string]int64{"": 1}}, `1 of "" for`},
		"nothing allocated": {"main", &pb.ContainerChanges{AllocateFrom: map[string]string{"r": ""}},
			`meets "r" of container "main" with ""`},
		"too long":           {"main", &pb.ContainerChanges{DevRequests: long}, "of 65536 that they may"},
		"another container":  {"other", &pb.ContainerChanges{}, `container "other", which the pod does not have`},
		"a very long name":   {strings.Repeat("x", 1<<20), nil, "which the pod does not have"},
		"not init container": {"init", nil, "which the pod does not have"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := changed(pod, &pb.PodChanges{
				RunningContainers: map[string]*pb.ContainerChanges{tc.container: tc.change}})
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

func TestCheckVerdict(t *testing.T) {
	reason := func(change func(*pb.Reason)) *pb.Verdict {
		r := &pb.Reason{Text: "no more", Resource: "r", Requested: 1}
		change(r)
		return &pb.Verdict{Reasons: []*pb.Reason{r}}
	}
	for name, tc := range map[string]struct {
		verdict *pb.Verdict
		good    bool
	}{
		"fits":              {&pb.Verdict{Fits: true, Score: 0.5}, true},
		"missing":           {nil, true},
		"a reason":          {reason(func(*pb.Reason) {}), true},
		"not a number":      {&pb.Verdict{Score: math.NaN()}, false},
		"infinite":          {&pb.Verdict{Score: math.Inf(1)}, false},
		"negative":          {&pb.Verdict{Score: -0.5}, false},
		"many reasons":      {&pb.Verdict{Reasons: make([]*pb.Reason, maxReasons+1)}, false},
		"a long reason":     {reason(func(r *pb.Reason) { r.Text = strings.Repeat("x", maxReason+1) }), false},
		"a long resource":   {reason(func(r *pb.Reason) { r.Resource = strings.Repeat("x", maxReason+1) }), false},
		"negative request":  {reason(func(r *pb.Reason) { r.Requested = -1 }), false},
		"negative use":      {reason(func(r *pb.Reason) { r.Used = -1 }), false},
		"negative capacity": {reason(func(r *pb.Reason) { r.Capacity = -1 }), false},
	} {
		if err := checkVerdict(tc.verdict); (err == nil) != tc.good || err != nil &&
			!errors.Is(err, contain.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
