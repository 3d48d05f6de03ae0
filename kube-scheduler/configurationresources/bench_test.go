package configurationresources

import (
	"context"
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	policylisters "k8s.io/client-go/listers/policy/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/clock"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/kube-scheduler/slotcache"
	"github.com/kubeslot/kubeslot/kube-scheduler/slotrequest"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// benchCluster is a plugin whose nodes each have devices of their own, and advertise
// them.
func benchCluster(nodes, devices int) (*Plugin, []fwk.NodeInfo) {
	slots := slotcache.New(klog.Background(), clock.RealClock{}, nil)
	p := newPlugin(slots, &fakeHandle{client: fake.NewClientset()}, corelisters.NewPodLister(store[any]()), nil)
	configuration := cameras(2)
	configuration.Spec.InstanceNameDigits = slot.LongHash
	p.cache.SetConfiguration(configuration)
	var infos []fwk.NodeInfo
	for i := range nodes {
		infos = append(infos, nodeInfo(fmt.Sprintf("node-%05d", i)))
	}
	for i, info := range infos {
		node, reports := info.Node().Name, []v1alpha1.Device(nil)
		for j := i; j < devices; j += nodes {
			id := fmt.Sprint("device-", j)
			reports = append(reports, v1alpha1.Device{Configuration: v1alpha1.ConfigurationReference{Namespace: "default", Name: "cam"},
				ID: id, Hash: slot.InstanceHash(id, false, node, slot.LongHash)})
		}
		p.cache.SetSlice(slice(node, "0", reports...))
	}
	return p, infos
}

// BenchmarkFilter is one node's Filter, or its Score, as the framework calls it.
func BenchmarkFilter(b *testing.B) {
	for _, size := range []struct{ nodes, devices int }{{500, 2_500}, {5_000, 25_000}, {5_000, 50_000}} {
		p, nodes := benchCluster(size.nodes, size.devices)
		score := func(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node fwk.NodeInfo) *fwk.Status {
			_, status := p.Score(ctx, state, pod, node)
			return status
		}
		for _, ask := range []struct {
			name, quantity string
			call           func(context.Context, fwk.CycleState, *v1.Pod, fwk.NodeInfo) *fwk.Status
		}{{"fits", "1", p.Filter}, {"refused", "50", p.Filter}, {"score", "1", score}} {
			b.Run(fmt.Sprintf("nodes=%d/devices=%d/%s", size.nodes, size.devices, ask.name), func(b *testing.B) {
				state, asking := framework.NewCycleState(), pod("p", ask.quantity)
				if _, status := p.PreFilter(context.Background(), state, asking, nodes); !status.IsSuccess() {
					b.Fatal(status)
				}
				p.PreScore(context.Background(), state, asking, nodes)
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					status := ask.call(context.Background(), state, asking, nodes[i%len(nodes)])
					if status.IsSuccess() == (ask.name == "refused") {
						b.Fatal(status)
					}
				}
			})
		}
	}
}

// BenchmarkPreFilter is what a pod costs before its nodes are looked at.
func BenchmarkPreFilter(b *testing.B) {
	for _, nodes := range []int{500, 5_000} {
		for _, deviceNodes := range []int{nodes / 20, nodes} {
			p, infos := benchCluster(deviceNodes, 5*deviceNodes)
			for len(infos) < nodes {
				infos = append(infos, nodeInfo(fmt.Sprintf("bare-%05d", len(infos))))
			}
			b.Run(fmt.Sprintf("nodes=%d/with devices=%d", nodes, deviceNodes), func(b *testing.B) {
				asking := pod("p", "1")
				b.ReportAllocs()
				for b.Loop() {
					if _, status := p.PreFilter(context.Background(), framework.NewCycleState(), asking, infos); !status.IsSuccess() {
						b.Fatal(status)
					}
				}
			})
		}
	}
}

// BenchmarkPreempt looks for a preemption on nodes that all differ, where none is possible, with
// 1000 budgets: counts tell, for no holder is of lower priority; or they do not, for the claims of
// others stay when the holders go.
func BenchmarkPreempt(b *testing.B) {
	for _, counts := range []bool{true, false} {
		for _, nodes := range []int{500, 1000, 5000, 20_000} {
			b.Run(fmt.Sprintf("counts tell=%t/nodes=%d", counts, nodes), func(b *testing.B) {
				p, infos := benchCluster(nodes, nodes)
				pods, budgets := store[any](), store[any]()
				p.preemption.Pods, p.preemption.PDBs = corelisters.NewPodLister(pods), policylisters.NewPodDisruptionBudgetLister(budgets)
				for i := range 1000 {
					_ = budgets.Add(&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprint("ns-", i%10), Name: fmt.Sprint("b", i)},
						Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": fmt.Sprint(i)}}}})
				}
				var names []string
				for i, info := range infos {
					node := info.Node().Name
					names = append(names, node)
					for j := range 2 {
						holder := withPriority(pod(fmt.Sprintf("h-%d-%d", i, j), "1"), 10)
						holder.Namespace, holder.Spec.NodeName = fmt.Sprint("ns-", i%10), node
						_ = pods.Add(holder)
						l := ledgerOf(p.cache)
						a, shortfall := l.Draft(ledger.Pack, slotrequest.PodOf(holder)).Fit(node, must(slotrequest.Of(holder)))
						if shortfall != nil {
							b.Fatal(shortfall)
						}
						l.Observe(slotrequest.PodOf(holder), node, a)
						if !counts {
							l.SetClaim(claim(a.Slots()[0].String(), "C:another:"+node))
						}
					}
				}
				asking := withPriority(pod("p", "1"), 10)
				if !counts {
					asking = important("p")
				}
				req := must(slotrequest.Of(asking))
				b.ReportAllocs()
				for b.Loop() {
					if best, _, _ := p.preemption.Preempt(b.Context(), req, names, 0, p.args.Strategy, time.Hour); best != nil {
						b.Fatal(best)
					}
				}
			})
		}
	}
}
