package configurationresources

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/kube-scheduler/config"
	"github.com/kubeslot/kubeslot/kube-scheduler/slotrequest"
	"github.com/kubeslot/kubeslot/types/assignment"
)

func TestPodsWithoutSlotsAreLeftAlone(t *testing.T) {
	r := newRig(t)
	p := pod("plain", "1")
	p.Spec.Containers[0].Resources = v1.ResourceRequirements{}
	p.Annotations[assignment.Annotation] = `{"runningcontainer":`
	state := framework.NewCycleState()
	_, status := r.PreFilter(r.ctx, state, p, nil)
	wantStatus(t, "PreFilter", status, fwk.Skip)
	wantStatus(t, "PreScore", r.PreScore(r.ctx, state, p, nil), fwk.Skip)
	wantStatus(t, "Reserve", r.Reserve(r.ctx, state, p, "node-a"), fwk.Success)
	wantStatus(t, "Bind", r.Bind(r.ctx, state, p, "node-a"), fwk.Skip)
	r.Unreserve(r.ctx, state, p, "node-a")
	_, status = r.SignPod(r.ctx, p)
	wantStatus(t, "SignPod", status, fwk.Success)
	_, status = r.SignPod(r.ctx, pod("p", "1"))
	wantStatus(t, "SignPod of a pod with slots", status, fwk.Unschedulable)
}

// A pod that cannot have its slots is refused with the reason, by container and resource.
func TestRefusals(t *testing.T) {
	tests := map[string]struct {
		change   func(*rig, *v1.Pod)
		code     fwk.Code
		contains []string
	}{
		"unknown configuration": {
			func(_ *rig, p *v1.Pod) { *p = *asks("p", "sonar", "1") },
			fwk.UnschedulableAndUnresolvable, []string{`"main"`, "akri.sh/sonar", "no Configuration or Instance"}},
		"more than exist": {
			func(_ *rig, p *v1.Pod) { *p = *pod("p", "2") },
			fwk.UnschedulableAndUnresolvable, []string{"too few Instances for akri.sh/cam", "needs 2 different ones", "1 reached"}},
		"too many slots in one pod": {
			func(_ *rig, p *v1.Pod) {
				half := pod("p", fmt.Sprint(slotrequest.MaxSlots/2)).Spec.Containers[0].Resources
				p.Spec.InitContainers = []v1.Container{{Name: "first", Resources: half}}
				p.Spec.Containers = []v1.Container{{Name: "main", Resources: half}, {Name: "last", Resources: pod("p", "1").Spec.Containers[0].Resources}}
			},
			fwk.UnschedulableAndUnresolvable, []string{`"last"`, "more than 1000 slots", "at most 100 resources"}},
		"too many resources in one pod": {
			func(_ *rig, p *v1.Pod) {
				names := v1.ResourceList{}
				for i := range slotrequest.MaxResources + 1 {
					names[v1.ResourceName(fmt.Sprint("akri.sh/cam-", i))] = resource.MustParse("1")
				}
				p.Spec.Containers[0].Resources = v1.ResourceRequirements{Limits: names}
			},
			fwk.UnschedulableAndUnresolvable, []string{"of 101 resources", "at most 1000 slots", "at most 100 resources"}},
		"malformed annotation": {
			func(_ *rig, p *v1.Pod) { p.Annotations[assignment.Annotation] = `{"requests":[]}` },
			fwk.UnschedulableAndUnresolvable, []string{"KubeDevice/DeviceInfo", "PodInfo"}},
		"misspelt annotation": {
			func(_ *rig, p *v1.Pod) { p.Annotations["KubeDevice/Deviceinfo"] = `{}` },
			fwk.UnschedulableAndUnresolvable, []string{`unknown annotation key "KubeDevice/Deviceinfo"`, `did you mean "KubeDevice/DeviceInfo"?`}},
		"held": {
			func(r *rig, _ *v1.Pod) {
				device(r.cache, "cam-000001", map[string]string{"cam-000001-0": "C:x:node-a"}, "node-a")
			},
			fwk.Unschedulable, []string{"0 of 1 slots free", "1 held"}},
		"out of reach": {
			func(r *rig, _ *v1.Pod) { device(r.cache, "cam-000001", nil, "node-b") },
			fwk.UnschedulableAndUnresolvable, []string{"reach no Instance"}},
		"not synced": {
			func(r *rig, _ *v1.Pod) { *r = *newRig(t, func() bool { return false }) },
			fwk.UnschedulableAndUnresolvable, []string{"CRDs"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			device(r.cache, "cam-000001", nil, "node-a")
			p := pod("p", "1")
			test.change(r, p)
			_, status := r.filter(p, "node-a")
			wantStatus(t, "filter", status, test.code, test.contains...)
		})
	}
}

func TestPreFilterNarrowsToNodesThatReach(t *testing.T) {
	r := newRig(t)
	device(r.cache, "cam-000001", nil, "node-a")
	var nodes []fwk.NodeInfo
	for i := range minNodesToNarrow {
		nodes = append(nodes, nodeInfo(fmt.Sprint("node-", i)))
	}
	result, status := r.PreFilter(r.ctx, framework.NewCycleState(), pod("p", "1"), nodes)
	if !status.IsSuccess() || result == nil || !result.NodeNames.Equal(sets.New("node-a")) {
		t.Errorf("got %v, %v", result, status)
	}
	result, status = r.PreFilter(r.ctx, framework.NewCycleState(), pod("p", "1"), nodes[:3])
	if !status.IsSuccess() || result != nil {
		t.Errorf("in a small cluster: got %v, %v", result, status)
	}
}

func TestScore(t *testing.T) {
	r := newRig(t)
	device(r.cache, "cam-000001", map[string]string{"cam-000001-0": "node-a"}, "node-a", "node-b", "node-c")
	device(r.cache, "cam-000002", nil, "node-a", "node-b", "node-c")
	device(r.cache, "cam-000003", nil, "node-b")
	p := pod("p", "1")
	state := framework.NewCycleState()
	if _, status := r.PreFilter(r.ctx, state, p, r.handle.nodes); !status.IsSuccess() {
		t.Fatal(status)
	}
	for _, test := range []struct {
		strategy    ledger.Strategy
		free, local int32
		a, b        int64
	}{
		{ledger.Spread, 1, 0, 50, 66},
		{ledger.Pack, 1, 0, 50, 33},
		{ledger.Spread, 0, 1, 0, 100},
		{ledger.Spread, 1, 1, 25, 83},
	} {
		r.args.Strategy, r.args.NodeScore = test.strategy,
			config.NodeScore{FreeSlots: &test.free, LocalDevices: &test.local}
		if status := r.PreScore(r.ctx, state, p, r.handle.nodes); !status.IsSuccess() {
			t.Fatal(status)
		}
		a, _ := r.Score(r.ctx, state, p, r.handle.nodes[0])
		if b, _ := r.Score(r.ctx, state, p, r.handle.nodes[1]); a != test.a || b != test.b {
			t.Errorf("%+v: got %d and %d", test, a, b)
		}
	}
	for what, nodes := range map[string][]fwk.NodeInfo{"all are alike": r.handle.nodes[:1],
		"none is known": {r.handle.nodes[0].Snapshot()}} {
		if status := r.PreScore(r.ctx, state, p, nodes); !status.IsSkip() {
			t.Errorf("%s: PreScore() = %v, want Score skipped", what, status)
		}
	}
}

// Preemption imagines pods gone and nominated ones in their place: the filter answers for what
// is imagined, and the pod's own state is left as it was.
func TestPreemptionImagines(t *testing.T) {
	r := cameraRig(t)
	victim, nominated, p := pod("victim", "1"), pod("nominated", "1"), pod("p", "1")
	r.schedule(victim, "node-a")
	state, status := r.filter(p, "node-a")
	wantStatus(t, "with the slot held", status, fwk.Unschedulable)
	info := func(p *v1.Pod) fwk.PodInfo { return must(framework.NewPodInfo(p)) }
	imagined := state.Clone()
	filter := func() *fwk.Status { return r.Filter(r.ctx, imagined, p, nodeInfo("node-a")) }
	r.RemovePod(r.ctx, imagined, p, info(victim), nil)
	wantStatus(t, "with the victim gone", filter(), fwk.Success)
	r.AddPod(r.ctx, imagined, p, info(nominated), nil)
	wantStatus(t, "with a nominated pod in its place", filter(), fwk.Unschedulable)
	r.RemovePod(r.ctx, imagined, p, info(nominated), nil)
	r.AddPod(r.ctx, imagined, p, info(victim), nil)
	wantStatus(t, "with the victim back", filter(), fwk.Unschedulable)
	wantStatus(t, "the clone leaves the original", r.Filter(r.ctx, state, p, nodeInfo("node-a")), fwk.Unschedulable)
}
