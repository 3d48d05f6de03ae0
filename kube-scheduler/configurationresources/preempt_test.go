package configurationresources

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	policylisters "k8s.io/client-go/listers/policy/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/kube-scheduler/preemption"
	"github.com/kubeslot/kubeslot/kube-scheduler/slotcache"
	"github.com/kubeslot/kubeslot/types/slot"
)

// nodesHandle adds what PostFilter needs of the framework.
type nodesHandle struct {
	fakeHandle
	fwk.SharedLister
	nodes    []fwk.NodeInfo
	recorder events.EventRecorderLogger
}

func (h nodesHandle) SnapshotSharedLister() fwk.SharedLister    { return h }
func (h nodesHandle) NodeInfos() fwk.NodeInfoLister             { return nodeLister{nodes: h.nodes} }
func (h nodesHandle) GetWaitingPod(types.UID) fwk.WaitingPod    { return nil }
func (h nodesHandle) EventRecorder() events.EventRecorderLogger { return h.recorder }

type noEvents struct{ events.EventRecorderLogger }

func (noEvents) Eventf(_, _ runtime.Object, _, _, _, _ string, _ ...any) {}

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

// preemptionRig has a shared camera with one slot, which a pod on node-b holds.
func preemptionRig(t *testing.T, sources ...cache.InformerSynced) (*rig, *v1.Pod) {
	r := newRig(t, sources...)
	r.mayPreempt(t)
	return r, r.hold(t, "cam-000001", pod("holder", "1"), "node-a", "node-b")
}

// mayPreempt gives the plugin what it needs for PostFilter.
func (r *rig) mayPreempt(t *testing.T, budgets ...*policyv1.PodDisruptionBudget) {
	t.Helper()
	r.use(nodesHandle{fakeHandle: fakeHandle{client: r.client}, nodes: []fwk.NodeInfo{nodeInfo("node-a"), nodeInfo("node-b")}, recorder: noEvents{}})
	store := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for _, b := range budgets {
		if err := store.Add(b); err != nil {
			t.Fatal(err)
		}
	}
	r.preemption.PDBs = policylisters.NewPodDisruptionBudgetLister(store)
}

// hold adds a camera of one slot that the nodes reach, and the pod that holds it on
// the last of them.
func (r *rig) hold(t *testing.T, camera string, holder *v1.Pod, nodes ...string) *v1.Pod {
	t.Helper()
	device(r.cache, camera, nil, nodes...)
	grant := ledger.Assignment{"main": {{Resource: "cam", Slot: slot.Name{Instance: camera}}}}
	holder = bound(t, holder, nodes[len(nodes)-1], grant)
	r.cache.SetPod(holder)
	r.create(holder)
	return holder
}

func important(name string) *v1.Pod {
	p, priority := pod(name, "1"), int32(100)
	p.Spec.Priority = &priority
	return p
}

// refuse runs the cycle to where the framework runs PostFilter: the nodes are short
// of slots.
func (r *rig) refuse(t *testing.T, p *v1.Pod, nodes ...string) (fwk.CycleState, *framework.NodeToStatus) {
	t.Helper()
	r.cache.SetPod(p)
	state, statuses := framework.NewCycleState(), framework.NewDefaultNodeToStatus()
	var infos []fwk.NodeInfo
	for _, node := range nodes {
		infos = append(infos, nodeInfo(node))
	}
	if _, status := r.PreFilter(r.ctx, state, p, infos); !status.IsSuccess() {
		t.Fatalf("PreFilter: %v", status)
	}
	for _, info := range infos {
		status := r.Filter(r.ctx, state, p, info)
		if status.Code() != fwk.Unschedulable {
			t.Fatalf("Filter of %s: %v", info.Node().Name, status)
		}
		statuses.Set(info.Node().Name, status.WithPlugin(Name))
	}
	return state, statuses
}

// postFilter is what the framework does when node-a is short of slots only. It
// returns the node that the pod is nominated to.
func (r *rig) postFilter(t *testing.T, p *v1.Pod) (string, *fwk.Status) {
	t.Helper()
	state, statuses := r.refuse(t, p, "node-a")
	statuses.Set("node-b", fwk.NewStatus(fwk.Unschedulable, "no CPU").WithPlugin("NodeResourcesFit"))
	return nominated(r.PostFilter(r.ctx, state, p, statuses))
}

// preempts is postFilter of a pod that preempts others, for node-a.
func (r *rig) preempts(t *testing.T, p *v1.Pod) (node string) {
	t.Helper()
	node, status := r.postFilter(t, p)
	if node != "node-a" || !status.IsSuccess() {
		t.Fatalf("pod %s is nominated to %q, %v", p.Name, node, status)
	}
	return node
}

// postFilterOn is postFilter when all the nodes are short of slots only.
func (r *rig) postFilterOn(t *testing.T, p *v1.Pod, nodes ...string) (string, *fwk.Status) {
	t.Helper()
	handle := r.handle.(nodesHandle)
	handle.nodes = nil
	for _, node := range nodes {
		handle.nodes = append(handle.nodes, nodeInfo(node))
	}
	r.use(handle)
	state, statuses := r.refuse(t, p, nodes...)
	return nominated(r.PostFilter(r.ctx, state, p, statuses))
}

func nominated(result *fwk.PostFilterResult, status *fwk.Status) (string, *fwk.Status) {
	if result == nil {
		return "", status
	}
	return result.NominatedNodeName, status
}

// deleted returns the names of the pods deleted, each by its UID.
func (r *rig) deleted() []string {
	var names []string
	for _, a := range r.client.Actions() {
		d, ok := a.(clienttesting.DeleteActionImpl)
		if !ok {
			continue
		}
		name := d.GetName()
		if pre := d.DeleteOptions.Preconditions; pre == nil || pre.UID == nil || *pre.UID != types.UID(name+"-uid") {
			name += ", or another of its name"
		}
		names = append(names, name)
	}
	return names
}

// synctestRun is a subtest in which time stands still while anything runs.
func synctestRun(t *testing.T, name string, test func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited 30s for %s", what)
		}
	}
}

// Of many nodes that are short of slots, all are looked at until there is choice
// enough: here pods of lower priority are on the last one only.
func TestPreemptsOnTheLastOfManyNodes(t *testing.T) {
	r := newRig(t)
	r.mayPreempt(t)
	nodes := crowdOf("node", 3*preemption.MaxPreemptions)
	for i, node := range nodes {
		holder := important(fmt.Sprint("holder-", i))
		if i == len(nodes)-1 {
			holder = pod("holder", "1")
		}
		r.hold(t, camera(i), holder, node)
	}
	vip := important("vip")
	if node, status := r.postFilterOn(t, vip, nodes...); node != nodes[len(nodes)-1] || !status.IsSuccess() {
		t.Fatalf("nominated to %q, %v", node, status)
	}
	eventually(t, "the holder's eviction", func() bool { return slices.Equal(r.deleted(), []string{"holder"}) })
}

// A pod on node-a takes the slot of a pod on node-b, and nobody takes it in
// between.
func TestPreemptsAcrossNodes(t *testing.T) {
	r, holder := preemptionRig(t)
	vip := important("vip")
	r.cache.SetPod(vip)
	r.preempts(t, vip)
	eventually(t, "the holder's eviction", func() bool { return slices.Equal(r.deleted(), []string{"holder"}) })
	// While the victim ends, nothing more is evicted.
	if node, status := r.postFilter(t, vip); node != "node-a" || !status.IsSuccess() || len(r.deleted()) != 1 {
		t.Errorf("the second time: nominated to %q, %v; deleted %v", node, status, r.deleted())
	}
	r.requeued()
	r.cache.DeletePod(holder)
	if got := r.requeued(); !slices.Contains(got, "vip") {
		t.Errorf("the victim gone: activated %v", got)
	}
	if _, status := r.filter(pod("thief", "1"), "node-b"); status.Code() != fwk.Unschedulable {
		t.Errorf("a pod of lower priority may take the slot: %v", status)
	}
	r.schedule(t, vip, "node-a")
	r.cache.SetPod(bound(t, vip, "node-a", r.given(vip)))
	if r.cache.NominatedNode("vip-uid") != "" {
		t.Error("the nomination outlives the bind")
	}
}

// The better of two nodes that are short of slots is chosen, and none that is short
// of something else.
func TestPreemptsOnTheBetterNode(t *testing.T) {
	for name, test := range map[string]struct {
		a, b int32 // the priority of the camera's holder on that node
		cpu  string
		want string
		gone string
	}{
		"the first":                         {a: 0, b: 50, want: "node-a", gone: "holder-a"},
		"the second":                        {a: 50, b: 0, want: "node-b", gone: "holder-b"},
		"the better one has no CPU":         {a: 50, b: 0, cpu: "node-b", want: "node-a", gone: "holder-a"},
		"equally good: by name, every time": {a: 7, b: 7, want: "node-a", gone: "holder-a"},
	} {
		synctestRun(t, name, func(t *testing.T) {
			r := newRig(t)
			r.mayPreempt(t)
			for node, priority := range map[string]int32{"node-a": test.a, "node-b": test.b} {
				which := strings.TrimPrefix(node, "node-")
				holder := pod("holder-"+which, "1")
				holder.Spec.Priority = &priority
				r.hold(t, "cam-00000"+which, holder, node)
			}
			vip := important("vip")
			state, statuses := r.refuse(t, vip, "node-a", "node-b")
			if test.cpu != "" {
				statuses.Set(test.cpu, fwk.NewStatus(fwk.Unschedulable, "no CPU").WithPlugin("NodeResourcesFit"))
			}
			if node, status := nominated(r.PostFilter(r.ctx, state, vip, statuses)); node != test.want || !status.IsSuccess() {
				t.Errorf("nominated to %q, %v; want %q", node, status, test.want)
			}
			if got := r.cache.NominatedNode("vip-uid"); got != test.want {
				t.Errorf("slots are kept on %q, want %q", got, test.want)
			}
			synctest.Wait() // for the evictions
			if got := r.deleted(); !slices.Equal(got, []string{test.gone}) {
				t.Errorf("evicted %v, want %v", got, test.gone)
			}
		})
	}
}

func TestDoesNotPreempt(t *testing.T) {
	never := v1.PreemptNever
	for name, change := range map[string]func(*v1.Pod){
		"same priority":          func(p *v1.Pod) { p.Spec.Priority = nil },
		"preemptionPolicy Never": func(p *v1.Pod) { p.Spec.PreemptionPolicy = &never },
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := preemptionRig(t)
			p := important("vip")
			change(p)
			if node, status := r.postFilter(t, p); node != "" || status.Code() != fwk.Unschedulable {
				t.Errorf("nominated to %q, %v", node, status)
			}
			if r.cache.NominatedNode("vip-uid") != "" {
				t.Error("slots are kept for it")
			}
		})
	}
}

// Two pods hold one slot after a late bind of a former leader: the later goes. A standby
// never evicts; it may come to lead, and does so then, be there pods to schedule or not.
func TestDoubleAllocation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slotcache.RegisterMetrics() // one that is not registered counts nothing
		r, holder := preemptionRig(t)
		late := bound(t, pod("late", "1"), "node-a", cam1)
		late.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionTrue, LastTransitionTime: metav1.Now()}}
		r.create(late)
		before, _ := metric(t, "kubeslot_scheduler_ledger_conflicts_total", "")
		r.cache.SetPod(late)
		r.cache.SetPod(late.DeepCopy())
		if after, _ := metric(t, "kubeslot_scheduler_ledger_conflicts_total", ""); after-before < 1 { // other tests may count some
			t.Errorf("%v conflicts are counted, want 1", after-before)
		}
		if r.requeuedWithin(time.Hour); len(r.deleted()) != 0 {
			t.Fatalf("a standby deletes %v", r.deleted())
		}
		(&Factory{cache: r.cache}).Lead()
		r.requeuedWithin(time.Minute)
		if got := r.deleted(); !slices.Equal(got, []string{"late"}) {
			t.Errorf("the leader deletes %v", got)
		}
		if !r.cache.Holds(string(holder.UID)) {
			t.Error("the first holder lost its slot")
		}
	})
}
