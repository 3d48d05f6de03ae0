package configurationresources

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	policylisters "k8s.io/client-go/listers/policy/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/parallelize"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	"k8s.io/utils/clock"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/kube-scheduler/binding"
	"github.com/kubeslot/kubeslot/kube-scheduler/preemption"
	"github.com/kubeslot/kubeslot/kube-scheduler/recovery"
	"github.com/kubeslot/kubeslot/kube-scheduler/slotcache"
	"github.com/kubeslot/kubeslot/types/assignment"
)

// rig is a plugin without its informers: tests feed the slot cache as those would.
type rig struct {
	*testing.T
	*Plugin
	ctx       context.Context
	client    *fake.Clientset
	handle    *fakeHandle   // the plugin's
	known     cache.Indexer // the pod informer's store
	budgets   cache.Indexer // that of the PodDisruptionBudgets
	activated []string
}

// newRig has a Configuration cam, of one slot a device. The sources are what the slot cache
// waits for, though not for long.
func newRig(t *testing.T, sources ...cache.InformerSynced) *rig {
	logger, _ := ktesting.NewTestContext(t)
	return newLoggingRig(t, logger, sources...)
}

// newLoggingRig is newRig with a logger of the test's own.
func newLoggingRig(t *testing.T, logger klog.Logger, sources ...cache.InformerSynced) *rig {
	r := &rig{T: t, ctx: klog.NewContext(t.Context(), logger), client: fake.NewClientset(), known: store[any](), budgets: store[any]()}
	r.handle = &fakeHandle{client: r.client, nodes: []fwk.NodeInfo{nodeInfo("node-a"), nodeInfo("node-b")}, recorder: &events.FakeRecorder{}}
	r.Plugin = newPlugin(slotcache.New(logger, clock.RealClock{}, r, sources...), r.handle,
		corelisters.NewPodLister(r.known), policylisters.NewPodDisruptionBudgetLister(r.budgets))
	r.cache.GiveUpWaiting()
	evictor := &recovery.Evictor{Logger: logger, Client: r.client, Recorder: r.handle.recorder,
		DoubleAllocations: r.cache.DoubleAllocations}
	go evictor.Run(r.ctx)
	r.cache.SetConfiguration(cameras(1))
	return r
}

// cameraRig has read the pods, and then of the camera cam-000001, of one slot, which node-a and
// node-b reach.
func cameraRig(t *testing.T, pods ...*v1.Pod) *rig {
	r := newRig(t)
	for _, p := range pods {
		r.cache.SetPod(p)
	}
	shared(r.cache, "cam-000001")
	r.cache.Begin(r.ctx)
	return r
}

// preemptionRig has a shared camera with one slot, which a pod on node-b holds.
func preemptionRig(t *testing.T, sources ...cache.InformerSynced) (*rig, *v1.Pod) {
	r := newRig(t, sources...)
	return r, r.hold("cam-000001", pod("holder", "1"), "node-a", "node-b")
}

// newPlugin makes a plugin with the default arguments, for pods of the default scheduler.
func newPlugin(slots *slotcache.Cache, handle fwk.Handle, pods corelisters.PodLister, pdbs policylisters.PodDisruptionBudgetLister) *Plugin {
	p := &Plugin{handle: handle, pods: pods, cache: slots, binder: &binding.Binder{Handle: handle, Clock: clock.RealClock{}},
		preemption: &preemption.Evaluator{PluginName: Name, Handle: handle, Cache: slots, Pods: pods, PDBs: pdbs}}
	p.args.SetDefaults()
	slots.AddProfile(v1.DefaultSchedulerName, &p.args)
	return p
}

// fakeHandle is what the plugin uses of the framework. Tests may change it.
type fakeHandle struct {
	fwk.Handle
	fwk.SharedLister
	client   clientset.Interface
	nodes    []fwk.NodeInfo
	recorder events.EventRecorderLogger
	dra      fwk.SharedDRAManager
}

func (h *fakeHandle) ProfileName() string                        { return "mine" }
func (h *fakeHandle) ClientSet() clientset.Interface             { return h.client }
func (h *fakeHandle) APICacher() fwk.APICacher                   { return nil }
func (h *fakeHandle) EventRecorder() events.EventRecorderLogger  { return h.recorder }
func (h *fakeHandle) SharedDRAManager() fwk.SharedDRAManager     { return h.dra }
func (h *fakeHandle) GetWaitingPod(types.UID) fwk.WaitingPod     { return nil }
func (h *fakeHandle) GetPodInPreBind(types.UID) fwk.PodInPreBind { return nil }
func (h *fakeHandle) SnapshotSharedLister() fwk.SharedLister     { return h }
func (h *fakeHandle) NodeInfos() fwk.NodeInfoLister              { return nodeLister{nodes: h.nodes} }

// Parallelizer has a metric, which upstream's scheduler registers.
func (h *fakeHandle) Parallelizer() fwk.Parallelizer {
	metrics.Register()
	return parallelize.NewParallelizer(2)
}

type nodeLister struct {
	fwk.NodeInfoLister
	nodes []fwk.NodeInfo
}

func (l nodeLister) List() ([]fwk.NodeInfo, error) { return l.nodes, nil }
func (l nodeLister) Get(name string) (fwk.NodeInfo, error) {
	i := slices.IndexFunc(l.nodes, func(n fwk.NodeInfo) bool { return n.Node().Name == name })
	if i < 0 {
		return nil, fmt.Errorf("node %s is not in the snapshot", name)
	}
	return l.nodes[i], nil
}

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

// requeuedWithin returns who has been activated since it was last asked, within a while. Nobody is
// tried meanwhile, and so they are activated again.
func (r *rig) requeuedWithin(within time.Duration) []string {
	end := time.Now().Add(within)
	for {
		synctest.Wait()
		wait, more := r.cache.Queue.Step()
		if left := time.Until(end); !more || wait > left {
			time.Sleep(left)
			synctest.Wait()
			return r.requeued()
		}
		time.Sleep(max(wait, time.Millisecond))
	}
}

// requeuedInVain is requeuedWithin of pods that are tried, in vain, as soon as they are activated.
func (r *rig) requeuedInVain(within time.Duration) (activated []string) {
	for more := r.requeuedWithin(0); len(more) > 0; more = r.requeuedWithin(0) {
		for _, name := range more {
			r.cache.Queue.Try(types.UID(name + "-uid"))
			r.cache.Queue.Asked(types.UID(name + "-uid"))
		}
		activated = append(activated, more...)
	}
	return append(activated, r.requeuedWithin(within)...)
}

// wantActivated answers the events, and wants these pods activated since that was done before.
func (r *rig) wantActivated(what string, names ...string) {
	r.Helper()
	if got := r.requeued(); !slices.Equal(got, names) {
		r.Errorf("%s: activated %v, want %v", what, got, names)
	}
}

// wantActivatedWithin is wantActivated for requeuedWithin.
func (r *rig) wantActivatedWithin(within time.Duration, what string, names ...string) {
	r.Helper()
	if got := r.requeuedWithin(within); !slices.Equal(got, names) {
		r.Errorf("%s: activated %v within %s, want %v", what, got, within, names)
	}
}

// wantFree wants so many slots of the resource to be free.
func (r *rig) wantFree(what, resource string, want int) {
	r.Helper()
	if got := ledgerOf(r.cache).Free(resource); got != want {
		r.Errorf("%s: %d slots of %s are free, want %d", what, got, resource, want)
	}
}

// wantKept wants slots to be kept on the node for the pod vip; for "" none.
func (r *rig) wantKept(what, node string) {
	r.Helper()
	if got, _ := r.cache.NominatedNode("vip-uid"); got != node {
		r.Errorf("%s: slots are kept on %q, want %q", what, got, node)
	}
}

// wantDeleted wants these pods to have been deleted, in this order, each by its UID.
func (r *rig) wantDeleted(what string, names ...string) {
	r.Helper()
	if got := r.deleted(); !slices.Equal(got, names) {
		r.Errorf("%s: deleted %v, want %v", what, got, names)
	}
}

// wantStatus wants the code, and a message that has the parts.
func wantStatus(t *testing.T, what string, status *fwk.Status, code fwk.Code, parts ...string) {
	t.Helper()
	if status.Code() != code {
		t.Errorf("%s: status %v (%v), want %v", what, status.Code(), status, code)
	}
	for _, part := range parts {
		if !strings.Contains(status.Message(), part) {
			t.Errorf("%s: message %q lacks %q", what, status.Message(), part)
		}
	}
}

// synctestRun is a subtest in which time stands still while anything runs.
func synctestRun(t *testing.T, name string, test func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

// know enters pods into the pod informer's store, and create into the API as well.
func (r *rig) know(pods ...*v1.Pod) {
	for _, p := range pods {
		check(r.known.Add(p))
	}
}

func (r *rig) create(pods ...*v1.Pod) {
	r.know(pods...)
	for _, p := range pods {
		check(r.client.Tracker().Add(p))
	}
}

// await has a pod wait that was tried.
func (r *rig) await(p *v1.Pod) {
	r.cache.SetPod(p)
	r.answered(p)
}

// answered records a try of a waiting pod that the informer does not know: PreFilter does not.
func (r *rig) answered(p *v1.Pod) {
	if _, err := r.pods.Pods(p.Namespace).Get(p.Name); err != nil {
		r.cache.Queue.Try(p.UID)
		r.cache.Queue.Asked(p.UID)
	}
}

// filter runs PreFilter, and Filter on the node.
func (r *rig) filter(p *v1.Pod, node string) (fwk.CycleState, *fwk.Status) {
	return r.filterOn(p, nodeInfo(node))
}

func (r *rig) filterOn(p *v1.Pod, node fwk.NodeInfo) (fwk.CycleState, *fwk.Status) {
	state := framework.NewCycleState()
	r.answered(p)
	if _, status := r.PreFilter(r.ctx, state, p, []fwk.NodeInfo{node}); !status.IsSuccess() {
		return state, status
	}
	return state, r.Filter(r.ctx, state, p, node)
}

// fits is filter of a pod that does.
func (r *rig) fits(p *v1.Pod, node string) fwk.CycleState {
	r.Helper()
	state, status := r.filter(p, node)
	if !status.IsSuccess() {
		r.Fatalf("filter pod %s: %v", p.Name, status)
	}
	return state
}

// refused is filter of a pod that does not fit.
func (r *rig) refused(p *v1.Pod, node string) {
	r.Helper()
	if _, status := r.filter(p, node); status.IsSuccess() {
		r.Fatalf("pod %s fits node %s", p.Name, node)
	}
}

// mayTake reports whether a further pod would get the slot.
func (r *rig) mayTake(node string) bool {
	_, status := r.filter(pod("further", "1"), node)
	return status.IsSuccess()
}

// schedule runs the cycle to Reserve.
func (r *rig) schedule(p *v1.Pod, node string) fwk.CycleState {
	r.Helper()
	state := r.fits(p, node)
	if status := r.Reserve(r.ctx, state, p, node); !status.IsSuccess() {
		r.Fatalf("reserve for pod %s: %v", p.Name, status)
	}
	return state
}

// tried has the pod tried on the nodes, as the framework does.
func (r *rig) tried(p *v1.Pod, nodes ...fwk.NodeInfo) {
	r.Helper()
	r.cache.SetPod(p)
	r.know(p)
	state := framework.NewCycleState()
	if _, status := r.PreFilter(r.ctx, state, p, nodes); !status.IsSuccess() {
		return
	}
	for _, node := range nodes {
		r.Filter(r.ctx, state, p, node)
	}
}

// hold adds a camera of one slot that the nodes reach, and the pod that holds it on
// the last of them.
func (r *rig) hold(camera string, holder *v1.Pod, nodes ...string) *v1.Pod {
	device(r.cache, camera, nil, nodes...)
	holder = bound(holder, nodes[len(nodes)-1], slotsOf(camera))
	r.cache.SetPod(holder)
	r.create(holder)
	return holder
}

// given are the slots of the camera that the pod has.
func (r *rig) given(p *v1.Pod) ledger.Assignment {
	var grants []assignment.Grant
	for _, s := range ledgerOf(r.cache).Holds(string(p.UID)) {
		grants = append(grants, assignment.Grant{Resource: "cam", Slot: s})
	}
	return ledger.Assignment{"main": grants}
}

// ledgerOf is the ledger, for tests that change nothing meanwhile.
func ledgerOf(c *slotcache.Cache) (l *ledger.Ledger) {
	c.Read(func(its *ledger.Ledger) { l = its })
	return l
}

// waiting is how many pods the queue has.
func (r *rig) waiting() (n int) {
	r.cache.Queue.Each(func(*v1.Pod, *slotcache.Waiting, []string) { n++ })
	return n
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
