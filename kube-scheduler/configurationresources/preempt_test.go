package configurationresources

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/kubeslot/kubeslot/kube-scheduler/slotcache"
	"github.com/kubeslot/kubeslot/kube-scheduler/waitreason"
	"github.com/kubeslot/kubeslot/test/await"
)

// refuse runs the cycle to where the framework runs PostFilter: the nodes are short
// of slots.
func (r *rig) refuse(p *v1.Pod, nodes ...string) (fwk.CycleState, *framework.NodeToStatus) {
	r.Helper()
	var infos []fwk.NodeInfo
	for _, node := range nodes {
		infos = append(infos, nodeInfo(node))
	}
	return r.refuseWith(p, fwk.Unschedulable, infos...)
}

// refuseWith is refuse on nodes that Filter refuses with the code.
func (r *rig) refuseWith(p *v1.Pod, code fwk.Code, infos ...fwk.NodeInfo) (fwk.CycleState, *framework.NodeToStatus) {
	r.Helper()
	r.await(p)
	state, statuses := framework.NewCycleState(), framework.NewDefaultNodeToStatus()
	if _, status := r.PreFilter(r.ctx, state, p, infos); !status.IsSuccess() {
		r.Fatalf("PreFilter: %v", status)
	}
	for _, info := range infos {
		status := r.Filter(r.ctx, state, p, info)
		if status.Code() != code {
			r.Fatalf("Filter of %s: %v", info.Node().Name, status)
		}
		statuses.Set(info.Node().Name, status.WithPlugin(Name))
	}
	return state, statuses
}

// postFilter is what the framework does when node-a is short of slots only. It
// returns the node that the pod is nominated to.
func (r *rig) postFilter(p *v1.Pod) (string, *fwk.Status) {
	r.Helper()
	state, statuses := r.refuse(p, "node-a")
	statuses.Set("node-b", fwk.NewStatus(fwk.Unschedulable, "no CPU").WithPlugin("NodeResourcesFit"))
	return nominated(r.PostFilter(r.ctx, state, p, statuses))
}

// preempts is postFilter of a pod that preempts others, for node-a.
func (r *rig) preempts(p *v1.Pod) {
	r.Helper()
	if node, status := r.postFilter(p); node != "node-a" || !status.IsSuccess() {
		r.Fatalf("pod %s is nominated to %q, %v", p.Name, node, status)
	}
}

// postFilterOn is postFilter when all the nodes are short of slots only.
func (r *rig) postFilterOn(p *v1.Pod, nodes ...string) (string, *fwk.Status) {
	r.Helper()
	r.handle.nodes = nil
	for _, node := range nodes {
		r.handle.nodes = append(r.handle.nodes, nodeInfo(node))
	}
	state, statuses := r.refuse(p, nodes...)
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

// A pod on node-a takes the slot of a pod on node-b, and nobody takes it in
// between: what is kept for it does not count as free.
func TestPreemptsAcrossNodes(t *testing.T) {
	r, holder := preemptionRig(t)
	vip := important("vip")
	r.cache.SetPod(vip)
	r.preempts(vip)
	await.That(t, "the holder's eviction", func() bool { return slices.Equal(r.deleted(), []string{"holder"}) })
	r.preempts(vip)
	r.wantDeleted("while the victim ends", "holder")
	r.await(pod("other", "1"))
	r.requeued()
	r.cache.DeletePod(holder)
	r.wantFree("the victim gone", "cam", 0)
	r.wantActivated("the victim gone", "vip")
	_, status := r.filter(pod("thief", "1"), "node-b")
	wantStatus(t, "a pod of lower priority takes the slot", status, fwk.Unschedulable)
	r.schedule(vip, "node-a")
	r.cache.SetPod(bound(vip, "node-a", r.given(vip)))
	r.wantKept("bound", "")
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
			r.hold("cam-00000a", withPriority(pod("holder-a", "1"), test.a), "node-a")
			r.hold("cam-00000b", withPriority(pod("holder-b", "1"), test.b), "node-b")
			vip := important("vip")
			state, statuses := r.refuse(vip, "node-a", "node-b")
			if test.cpu != "" {
				statuses.Set(test.cpu, fwk.NewStatus(fwk.Unschedulable, "no CPU").WithPlugin("NodeResourcesFit"))
			}
			if node, status := nominated(r.PostFilter(r.ctx, state, vip, statuses)); node != test.want || !status.IsSuccess() {
				t.Errorf("nominated to %q, %v; want %q", node, status, test.want)
			}
			r.wantKept("nominated", test.want)
			synctest.Wait() // for the evictions
			r.wantDeleted("nominated", test.gone)
		})
	}
}

// Of two pods that would do, the one goes that no budget covers, though it is the
// more important otherwise: its priority is higher and it is older.
func TestPreemptsPodsWithoutABudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		check(r.budgets.Add(&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "b", Namespace: "default"},
			Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"group": "lesser"}}}}))
		for i, name := range []string{"greater", "lesser"} {
			holder := withPriority(pod(name, "1"), int32(50-i))
			holder.Labels = map[string]string{"group": name}
			started := metav1.Unix(int64(1000*i), 0)
			holder.Status.StartTime = &started
			r.hold(camera(name), holder, "node-a", "node-b")
		}
		r.preempts(important("vip"))
		synctest.Wait() // for the eviction
		r.wantDeleted("the one without a budget", "greater")
	})
}

// The node for which slots are kept is cordoned before the victim is gone: its end would not help there. The
// pod is nominated to another node that reaches the device.
func TestNominationEndsWhenItsNodeIsCordoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, holder := preemptionRig(t)
		vip := important("vip")
		r.know(vip)
		r.preempts(vip)
		synctest.Wait() // for the eviction
		r.cache.SetPod(ending(holder))
		state, statuses := r.refuse(vip, "node-a", "node-b")
		statuses.Set("node-a", fwk.NewStatus(fwk.UnschedulableAndUnresolvable).WithPlugin("NodeUnschedulable"))
		node, status := nominated(r.PostFilter(r.ctx, state, vip, statuses))
		if node != "node-b" || !status.IsSuccess() {
			t.Errorf("nominated to %q, %v", node, status)
		}
		r.wantKept("node-a is cordoned", "node-b")
		r.wantDeleted("in all", "holder")
	})
}

// No pod is preempted for a node whose kubelet would refuse the preemptor. It is tried again once the node
// advertises enough, as no event of the ledger would have it.
func TestPreemptsWhenTheKubeletKnows(t *testing.T) {
	q := newRealScheduler(t, nil, advertising("node-a", "1"), advertising("node-b", "2"))
	shared(q.cache, "cam-000001", "cam-000002")
	for _, name := range []string{"holder-1", "holder-2"} {
		q.add("node-b", name)
		q.eventuallyBound(name, "node-b")
	}
	vip := withPriority(pod("vip", "2"), 2000)
	vip.Spec.NodeSelector = map[string]string{v1.LabelHostname: "node-a"}
	check(q.client.Tracker().Add(vip))
	q.eventually("the pod to wait for what its node advertises", func() bool {
		record, waits := q.cache.Queue.Get(vip.UID)
		return waits && record.Met(waitreason.NotAdvertised)
	})
	q.rest()
	q.wantKept("while too few are advertised", "")
	q.wantDeleted("while too few are advertised")
	q.updateNode(advertising("node-a", "2"))
	q.eventuallyBound("vip", "node-a")
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
			if node, status := r.postFilter(p); node != "" || status.Code() != fwk.Unschedulable {
				t.Errorf("nominated to %q, %v", node, status)
			}
			r.wantKept("not nominated", "")
		})
	}
}

// Two pods hold one slot after a late bind of a former leader: the later goes. A standby
// never evicts; it may come to lead, and does so then, be there pods to schedule or not.
func TestDoubleAllocation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slotcache.RegisterMetrics() // one that is not registered counts nothing
		r, holder := preemptionRig(t)
		late := bound(pod("late", "1"), "node-a", cam1)
		late.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionTrue, LastTransitionTime: metav1.Now()}}
		r.create(late)
		before, _ := metric(t, "kubeslot_scheduler_ledger_conflicts_total", "")
		r.cache.SetPod(late)
		r.cache.SetPod(late.DeepCopy())
		if after, _ := metric(t, "kubeslot_scheduler_ledger_conflicts_total", ""); after-before < 1 { // other tests may count some
			t.Errorf("%v conflicts are counted, want 1", after-before)
		}
		r.requeuedWithin(time.Hour)
		r.wantDeleted("by a standby")
		(&Factory{cache: r.cache}).Lead()
		r.requeuedWithin(time.Minute)
		r.wantDeleted("by the leader", "late")
		if !r.cache.Holds(string(holder.UID)) {
			t.Error("the first holder lost its slot")
		}
	})
}
