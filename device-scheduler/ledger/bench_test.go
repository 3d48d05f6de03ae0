package ledger

import (
	"fmt"
	"math/rand/v2"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/slot"
)

// fleet is a cluster of one Configuration: shared Instances that every node
// reaches, or as many for each node alone.
func fleet(nodes, instances int, shared bool) (*Ledger, []string) {
	l := New()
	l.SetConfiguration(&akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Name: "cam", Namespace: "ns"}})
	var names []string
	for n := range nodes {
		names = append(names, fmt.Sprintf("node-%05d", n))
	}
	for i := range instances {
		in := &akriv0.Instance{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("cam-%06x", i), Namespace: "ns"},
			Spec: akriv0.InstanceSpec{ConfigurationName: "cam", Capacity: 2, Nodes: names}}
		if !shared {
			in.Spec.Nodes = names[i%nodes : i%nodes+1]
		}
		l.SetInstance(in)
	}
	return l, names
}

func podFor(containers, count int) *Request {
	req := &Request{Pod: Pod{UID: "p", Namespace: "ns", Name: "p"}}
	for i := range containers {
		req.Containers = append(req.Containers, ContainerRequest{Name: fmt.Sprint("c", i), Resources: []ResourceRequest{{Name: "cam", Count: count}}})
	}
	return req
}

// BenchmarkFit is a Filter on one node. It must not grow with the cluster, only
// with what the pod asks for.
func BenchmarkFit(b *testing.B) {
	for _, instances := range []int{500, 5_000, 50_000} {
		for _, shared := range []bool{false, true} {
			l, nodes := fleet(500, instances, shared)
			for _, ask := range []struct{ containers, count int }{{1, 1}, {1, 8}, {4, 2}, {1, 500}} {
				if !shared && instances/500 < ask.count {
					continue
				}
				b.Run(fmt.Sprintf("instances=%d/shared=%v/containers=%d/count=%d", instances, shared, ask.containers, ask.count), func(b *testing.B) {
					req := podFor(ask.containers, ask.count)
					b.ReportAllocs()
					for i := 0; b.Loop(); i++ {
						if _, shortfall := l.Draft(Spread).Fit(nodes[i%len(nodes)], req); shortfall != nil && instances > 500 {
							b.Fatal(shortfall)
						}
					}
				})
			}
		}
	}
}

// BenchmarkFits is the Filter of a simple request, which must not allocate
// (TestSurveyDoesNotAllocate).
func BenchmarkFits(b *testing.B) {
	for _, instances := range []int{500, 50_000} {
		for _, shared := range []bool{false, true} {
			l, nodes := fleet(500, instances, shared)
			b.Run(fmt.Sprintf("instances=%d/shared=%v", instances, shared), func(b *testing.B) {
				survey := l.Survey(podFor(1, 1), NewRoll(nodes))
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					place := i % len(nodes)
					if shortfall, sure := survey.Fits(nodes[place], place); shortfall != nil || !sure {
						b.Fatal(shortfall, sure)
					}
				}
			})
		}
	}
}

// BenchmarkReserve is Reserve and Unreserve of one pod, two slots a container.
func BenchmarkReserve(b *testing.B) {
	for _, size := range []struct{ nodes, instances int }{{500, 500}, {500, 5_000}, {500, 50_000}, {5_000, 50_000}} {
		l, nodes := fleet(size.nodes, size.instances, true)
		for _, containers := range []int{1, 4, 8} {
			b.Run(fmt.Sprintf("nodes=%d/instances=%d/containers=%d", size.nodes, size.instances, containers), func(b *testing.B) {
				req := podFor(containers, 2)
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					node := nodes[i%len(nodes)]
					a, shortfall := l.Draft(Spread).Fit(node, req)
					if shortfall != nil {
						b.Fatal(shortfall)
					}
					if _, err := l.Assume(req.Pod, node, a); err != nil {
						b.Fatal(err)
					}
					l.Forget(req.UID)
				}
			})
		}
	}
}

// BenchmarkPreempt looks for the victims on a node from which all devices are
// reached, each slot of them held by a pod elsewhere: the pod needs one of them, or
// eight; also one of another kind, which the most important of the pods holds, or
// which nobody does who could be evicted.
func BenchmarkPreempt(b *testing.B) {
	for _, holders := range []int{1_000, 5_000} {
		l, nodes := fleet(10, holders/2, true)
		l.SetConfiguration(&akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Name: "gps", Namespace: "ns"}})
		for _, in := range []struct{ name, claim string }{{"gps-held", ""}, {"gps-claimed", "C:stranger:elsewhere"}} {
			l.SetInstance(&akriv0.Instance{ObjectMeta: metav1.ObjectMeta{Name: in.name, Namespace: "ns"}, Spec: akriv0.InstanceSpec{
				ConfigurationName: "gps", Capacity: 1, Nodes: nodes, DeviceUsage: map[string]string{in.name + "-0": in.claim}}})
		}
		hold := func(uid string, priority int32, s slot.Name) {
			l.Observe(Pod{UID: uid, Namespace: "ns", Name: uid, Priority: priority}, nodes[0], Assignment{"main": {{Resource: "cam", Slot: s}}})
		}
		for i := range holders {
			hold(fmt.Sprint("p", i), 0, slot.Name{Instance: fmt.Sprintf("cam-%06x", i/2), Index: i % 2})
		}
		hold("important", 1, slot.Name{Instance: "gps-held"})
		for _, ask := range []struct {
			count   int
			gps     string
			victims int
		}{{1, "", 1}, {8, "", 8}, {1, "gps", 2}, {1, "gps-claimed", 0}} {
			name := fmt.Sprintf("holders=%d/count=%d", holders, ask.count)
			req := podFor(1, ask.count)
			req.UID = "vip"
			if ask.gps != "" {
				name += "/" + ask.gps
				req.Containers[0].Resources = append(req.Containers[0].Resources, ResourceRequest{Name: ask.gps, Count: 1})
			}
			b.Run(name, func(b *testing.B) {
				for b.Loop() {
					p := l.Preempt(Spread, nodes[1], req, l.Holdings(req).On(nodes[1]))
					if (p != nil) != (ask.victims > 0) || p != nil && len(p.Victims) != ask.victims {
						b.Fatalf("%+v", p)
					}
				}
			})
		}
	}
}

// BenchmarkUpdate is an Instance's event, when its node claims a slot or gives it
// back.
func BenchmarkUpdate(b *testing.B) {
	for _, nodes := range []int{500, 5_000} {
		for _, shared := range []bool{false, true} {
			l, names := fleet(nodes, 5*nodes, false)
			reach := names[:1]
			if shared {
				reach = names
			}
			b.Run(fmt.Sprintf("nodes=%d/shared=%v", nodes, shared), func(b *testing.B) {
				usage := []map[string]string{{"cam-000000-0": ""}, {"cam-000000-0": "C:p:" + names[0]}}
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					l.SetInstance(&akriv0.Instance{ObjectMeta: metav1.ObjectMeta{Name: "cam-000000", Namespace: "ns"},
						Spec: akriv0.InstanceSpec{ConfigurationName: "cam", Capacity: 2, Nodes: reach, DeviceUsage: usage[i%2]}})
				}
			})
		}
	}
}

// BenchmarkRebuild reads a whole cluster, as after a restart: its Instances, and
// the pods that have one slot of each, one for each of their containers.
func BenchmarkRebuild(b *testing.B) {
	for _, size := range []struct{ nodes, instances int }{{500, 500}, {500, 5_000}, {500, 50_000}, {5_000, 50_000}} {
		for _, containers := range []int{1, 4, 8} {
			b.Run(fmt.Sprintf("nodes=%d/instances=%d/containers=%d", size.nodes, size.instances, containers), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					l, nodes := fleet(size.nodes, size.instances, false)
					for i := 0; i < size.instances; i += containers {
						a := make(Assignment, containers)
						for c := i; c < min(i+containers, size.instances); c++ {
							a[fmt.Sprint("c", c-i)] = []assignment.Grant{{Resource: "cam", Slot: slot.Name{Instance: fmt.Sprintf("cam-%06x", c)}}}
						}
						name := fmt.Sprintf("pod-%06x", i)
						l.Observe(Pod{UID: name, Namespace: "ns", Name: name}, nodes[i%size.nodes], a)
					}
				}
			})
		}
	}
}

// BenchmarkTrade fits pods whose containers have to trade: each asks for several of few
// devices, of which Pack leaves the last ones too few different. The sizes are drawn,
// from seeds with which there are many trades and enough slots.
func BenchmarkTrade(b *testing.B) {
	for _, of := range []struct{ containers, seed int }{{5, 4991}, {15, 3275}, {45, 4961}} {
		l := New()
		l.SetConfiguration(&akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Name: "cam", Namespace: "ns"}})
		req := podFor(of.containers, 0)
		random := rand.New(rand.NewPCG(uint64(of.seed), 0))
		slots := 0
		for i := range req.Containers {
			count := 1 + random.IntN(of.containers-1)
			req.Containers[i].Resources[0].Count = count
			slots += count
		}
		for i := range of.containers {
			l.SetInstance(&akriv0.Instance{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("cam-", i), Namespace: "ns"},
				Spec: akriv0.InstanceSpec{ConfigurationName: "cam", Capacity: int32(1 + random.IntN(of.containers)), Nodes: []string{"a"}}})
		}
		b.Run(fmt.Sprintf("containers=%d/slots=%d", of.containers, slots), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, shortfall := l.Draft(Pack).Fit("a", req); shortfall != nil {
					b.Fatal(shortfall)
				}
			}
		})
	}
}

// inVain is a pod of 400 containers, of which the last one could trade with each of the
// others, and none has what it needs.
func inVain() (*Ledger, *Request) {
	l := New()
	l.SetConfiguration(&akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Name: "cam", Namespace: "ns"}})
	set := func(name string, capacity int32) {
		l.SetInstance(&akriv0.Instance{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns"},
			Spec: akriv0.InstanceSpec{ConfigurationName: "cam", Capacity: capacity, Nodes: []string{"a"}}})
	}
	set("cam-one", 1000)
	set("cam-two", 1000)
	req := podFor(400, 2)
	for i := range req.Containers {
		c := &req.Containers[i]
		if c.Role = Sidecar; i >= 200 {
			c.Resources[0].Count = 3
			if i < 399 {
				set(fmt.Sprint("cam-own-", i), 1)
			}
		}
	}
	req.Containers[399].Role = Init
	return l, req
}

// BenchmarkTradeInVain refuses a pod after all that a refusal may take.
func BenchmarkTradeInVain(b *testing.B) {
	l, req := inVain()
	b.ReportAllocs()
	for b.Loop() {
		if _, shortfall := l.Draft(Spread).Fit("a", req); shortfall == nil {
			b.Fatal("it fits")
		}
	}
}
