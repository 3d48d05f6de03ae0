package configurationresources

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	policylisters "k8s.io/client-go/listers/policy/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/clock"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/kube-scheduler/binding"
	"github.com/kubeslot/kubeslot/kube-scheduler/config"
	"github.com/kubeslot/kubeslot/kube-scheduler/preemption"
	"github.com/kubeslot/kubeslot/kube-scheduler/recovery"
	"github.com/kubeslot/kubeslot/kube-scheduler/slotcache"
	"github.com/kubeslot/kubeslot/kube-scheduler/slotrequest"
	devicetypes "github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/assignment"
)

// rig is a plugin without its informers: tests feed the slot cache as those would.
type rig struct {
	*Plugin
	ctx       context.Context
	client    *fake.Clientset
	known     cache.Indexer // the pod informer's store
	activated []string
}

type fakeHandle struct {
	fwk.Handle
	client clientset.Interface
}

func (h fakeHandle) ClientSet() clientset.Interface         { return h.client }
func (h fakeHandle) APICacher() fwk.APICacher               { return nil }
func (h fakeHandle) SharedDRAManager() fwk.SharedDRAManager { return nil }

// Activate implements fwk.PodActivator.
func (r *rig) Activate(_ klog.Logger, pods map[string]*v1.Pod) {
	for _, uid := range slices.Sorted(maps.Keys(pods)) {
		r.activated = append(r.activated, pods[uid].Name)
	}
}

// requeued answers the events and returns the pods activated since it was called before.
func (r *rig) requeued() []string {
	r.cache.Queue.Step()
	activated := slices.Compact(slices.Sorted(slices.Values(r.activated)))
	r.activated = nil
	return activated
}

// newRig has a Configuration cam, of one slot a device. The sources are what the slot cache
// waits for, though not for long.
func newRig(t *testing.T, sources ...cache.InformerSynced) *rig {
	logger, ctx := ktesting.NewTestContext(t)
	return newRigWith(ctx, logger, sources...)
}

func newRigWith(ctx context.Context, logger klog.Logger, sources ...cache.InformerSynced) *rig {
	r := &rig{ctx: ctx, client: fake.NewClientset(), known: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})}
	r.Plugin = newPlugin(slotcache.New(logger, clock.RealClock{}, r, sources...), fakeHandle{client: r.client},
		corelisters.NewPodLister(r.known), nil)
	r.cache.GiveUpWaiting()
	r.cache.Queue.Start()
	r.cache.EvictWith(func(found []*ledger.DoubleAllocation) { r.evictor().Evict(r.ctx, found) })
	r.cache.SetConfiguration(cameras(1))
	return r
}

// newPlugin makes a plugin with the default arguments, for pods of the default scheduler.
func newPlugin(slots *slotcache.Cache, handle fwk.Handle, pods corelisters.PodLister, pdbs policylisters.PodDisruptionBudgetLister) *Plugin {
	p := &Plugin{pods: pods, cache: slots, preemption: &preemption.Evaluator{PluginName: Name, Cache: slots, Pods: pods, PDBs: pdbs}}
	p.args.SetDefaults()
	p.use(handle)
	slots.AddProfile(v1.DefaultSchedulerName, &p.args)
	return p
}

// use gives the plugin another handle.
func (p *Plugin) use(handle fwk.Handle) {
	p.handle, p.preemption.Handle = handle, handle
	p.binder = &binding.Binder{Handle: handle, Clock: clock.RealClock{}}
}

func (r *rig) evictor() *recovery.Evictor {
	return &recovery.Evictor{Logger: klog.FromContext(r.ctx), Client: r.client, Recorder: noEvents{}}
}

// ledgerOf is the ledger, for tests that change nothing meanwhile.
func ledgerOf(c *slotcache.Cache) (l *ledger.Ledger) {
	c.Read(func(its *ledger.Ledger) { l = its })
	return l
}

// given are the slots of the camera that the pod has.
func (r *rig) given(p *v1.Pod) ledger.Assignment {
	var grants []assignment.Grant
	for _, s := range ledgerOf(r.cache).Holds(string(p.UID)) {
		grants = append(grants, assignment.Grant{Resource: "cam", Slot: s})
	}
	return ledger.Assignment{"main": grants}
}

func pod(name, quantity string) *v1.Pod {
	amount := v1.ResourceList{"akri.sh/cam": resource.MustParse(quantity)}
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name + "-uid"), Annotations: map[string]string{}},
		Spec: v1.PodSpec{SchedulerName: v1.DefaultSchedulerName, Containers: []v1.Container{{Name: "main",
			Resources: v1.ResourceRequirements{Requests: amount, Limits: amount}}}},
	}
}

func nodeInfo(name string) fwk.NodeInfo {
	info := framework.NewNodeInfo()
	node := withNode(name)
	node.Status.Allocatable = v1.ResourceList{"akri.sh/cam": resource.MustParse("100")}
	info.SetNode(node)
	return info
}

// know enters pods into the pod informer's store, and create into the API as well.
func (r *rig) know(pods ...*v1.Pod) {
	for _, p := range pods {
		if err := r.known.Add(p); err != nil {
			panic(err)
		}
	}
}

func (r *rig) create(pods ...*v1.Pod) {
	r.know(pods...)
	for _, p := range pods {
		if err := r.client.Tracker().Add(p); err != nil {
			panic(err)
		}
	}
}

// filter runs PreFilter, and Filter on the node.
func (r *rig) filter(p *v1.Pod, node string) (fwk.CycleState, *fwk.Status) {
	state := framework.NewCycleState()
	if _, status := r.PreFilter(r.ctx, state, p, []fwk.NodeInfo{nodeInfo(node)}); !status.IsSuccess() {
		return state, status
	}
	return state, r.Filter(r.ctx, state, p, nodeInfo(node))
}

// refused is filter of a pod that does not fit.
func (r *rig) refused(t *testing.T, p *v1.Pod, node string) {
	t.Helper()
	if _, status := r.filter(p, node); status.IsSuccess() {
		t.Fatalf("pod %s fits node %s", p.Name, node)
	}
}

// schedule runs the cycle to Reserve.
func (r *rig) schedule(t *testing.T, p *v1.Pod, node string) fwk.CycleState {
	t.Helper()
	state, status := r.filter(p, node)
	if !status.IsSuccess() {
		t.Fatalf("filter pod %s: %v", p.Name, status)
	}
	if status := r.Reserve(r.ctx, state, p, node); !status.IsSuccess() {
		t.Fatalf("reserve for pod %s: %v", p.Name, status)
	}
	return state
}

// bindings returns what was sent to the API.
func (r *rig) bindings() []*v1.Binding {
	var out []*v1.Binding
	for _, a := range r.client.Actions() {
		if a.Matches("create", "pods/binding") {
			out = append(out, a.(clienttesting.CreateAction).GetObject().(*v1.Binding))
		}
	}
	return out
}

func TestPodsWithoutSlotsAreLeftAlone(t *testing.T) {
	r := newRig(t)
	p := pod("plain", "1")
	p.Spec.Containers[0].Resources = v1.ResourceRequirements{}
	p.Annotations[assignment.Annotation] = `{"runningcontainer":`
	state := framework.NewCycleState()
	if _, status := r.PreFilter(r.ctx, state, p, nil); !status.IsSkip() {
		t.Errorf("PreFilter: %v", status)
	}
	if status := r.PreScore(r.ctx, state, p, nil); !status.IsSkip() {
		t.Errorf("PreScore: %v", status)
	}
	if status := r.Reserve(r.ctx, state, p, "node-a"); !status.IsSuccess() {
		t.Errorf("Reserve: %v", status)
	}
	if status := r.Bind(r.ctx, state, p, "node-a"); !status.IsSkip() {
		t.Errorf("Bind: %v", status)
	}
	r.Unreserve(r.ctx, state, p, "node-a")
	if _, status := r.SignPod(r.ctx, p); !status.IsSuccess() {
		t.Errorf("SignPod: %v", status)
	}
	if _, status := r.SignPod(r.ctx, pod("p", "1")); status.Code() != fwk.Unschedulable {
		t.Errorf("SignPod of a pod with slots: %v", status)
	}
}

func TestRefusals(t *testing.T) {
	tests := map[string]struct {
		change   func(*rig, *v1.Pod)
		code     fwk.Code
		contains []string
	}{
		"unknown configuration": {
			func(_ *rig, p *v1.Pod) {
				p.Spec.Containers[0].Resources.Requests = v1.ResourceList{"akri.sh/sonar": resource.MustParse("1")}
			},
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
			if status.Code() != test.code {
				t.Errorf("status is %v (%v), want %v", status.Code(), status, test.code)
			}
			for _, s := range test.contains {
				if !strings.Contains(status.Message(), s) {
					t.Errorf("message %q lacks %q", status.Message(), s)
				}
			}
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
	state, _ := r.filter(p, "node-a")
	score := func(strategy ledger.Strategy, free, local int32, node string) int64 {
		r.args.Strategy, r.args.NodeScore = strategy, config.NodeScore{FreeSlots: &free, LocalDevices: &local}
		got, status := r.Score(r.ctx, state, p, nodeInfo(node))
		if !status.IsSuccess() {
			t.Fatal(status)
		}
		return got
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
		if a, b := score(test.strategy, test.free, test.local, "node-a"), score(test.strategy, test.free, test.local, "node-b"); a != test.a || b != test.b {
			t.Errorf("%+v: got %d and %d", test, a, b)
		}
	}
}

func TestPreemptionImagines(t *testing.T) {
	r := newRig(t)
	device(r.cache, "cam-000001", nil, "node-a", "node-b")
	victim := pod("victim", "1")
	r.schedule(t, victim, "node-a")
	p := pod("p", "1")
	state, status := r.filter(p, "node-a")
	if status.Code() != fwk.Unschedulable {
		t.Fatalf("with the slot held: %v", status)
	}
	info := func(p *v1.Pod) fwk.PodInfo {
		i, err := framework.NewPodInfo(p)
		if err != nil {
			t.Fatal(err)
		}
		return i
	}
	imagined := state.Clone()
	r.RemovePod(r.ctx, imagined, p, info(victim), nil)
	if status := r.Filter(r.ctx, imagined, p, nodeInfo("node-a")); !status.IsSuccess() {
		t.Errorf("with the victim gone: %v", status)
	}
	nominated := pod("nominated", "1")
	r.AddPod(r.ctx, imagined, p, info(nominated), nil)
	if status := r.Filter(r.ctx, imagined, p, nodeInfo("node-a")); status.Code() != fwk.Unschedulable {
		t.Errorf("with a nominated pod in its place: %v", status)
	}
	r.RemovePod(r.ctx, imagined, p, info(nominated), nil)
	r.AddPod(r.ctx, imagined, p, info(victim), nil)
	if status := r.Filter(r.ctx, imagined, p, nodeInfo("node-a")); status.Code() != fwk.Unschedulable {
		t.Errorf("with the victim back: %v", status)
	}
	if status := r.Filter(r.ctx, state, p, nodeInfo("node-a")); status.Code() != fwk.Unschedulable {
		t.Errorf("the clone changed the original: %v", status)
	}
}

// bound is the pod as the API shows it after the plugin's Binding.
func bound(t *testing.T, p *v1.Pod, node string, a ledger.Assignment) *v1.Pod {
	t.Helper()
	notes, err := assignment.Encode(&devicetypes.PodInfo{NodeName: node, RunningContainers: partOf(a)}, string(p.UID), nil)
	if err != nil {
		t.Fatal(err)
	}
	p = p.DeepCopy()
	p.Spec.NodeName = node
	maps.Copy(p.Annotations, notes)
	return p
}
