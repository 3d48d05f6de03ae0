package ledger

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// fleet is a cluster of one Configuration: shared Instances that every node
// reaches, or as many for each node alone.
func fleet(nodes, instances int, shared bool) (*Ledger, []string) {
	spec := akriv0.ConfigurationSpec{Capacity: 2, InstanceNameDigits: slot.LongHash}
	if shared {
		spec.Discovery = &akriv0.Discovery{}
	}
	l, names := ledgerOf(spec), fleetNodes(nodes)
	reporters := names
	if shared {
		for _, node := range names {
			l.SetNode(node, nil)
		}
		reporters = names[:1]
	}
	for _, s := range fleetSlices(reporters, instances, shared) {
		l.SetSlice(s)
	}
	return l, names
}

func fleetNodes(nodes int) []string {
	names := make([]string, nodes)
	for n := range names {
		names[n] = fmt.Sprintf("node-%05d", n)
	}
	return names
}

// fleetSlices are those of nodes that report the Instances in turn.
func fleetSlices(nodes []string, instances int, shared bool) []*v1alpha1.DeviceSlice {
	var all []*v1alpha1.DeviceSlice
	for n, node := range nodes {
		var devices []v1alpha1.Device
		for i := n; i < instances; i += len(nodes) {
			devices = append(devices, fleetDevice(i, node, shared))
		}
		for part := range slices.Chunk(devices, v1alpha1.MaxDevices) {
			all = append(all, sliceOf(fmt.Sprint(node, "-", part[0].ID), node, part...))
		}
	}
	return all
}

func fleetDevice(i int, node string, shared bool) v1alpha1.Device {
	d := v1alpha1.Device{Configuration: v1alpha1.ConfigurationReference{Namespace: "ns", Name: "cam"}, ID: fmt.Sprint(i), Shared: shared}
	d.Hash = slot.InstanceHash(d.ID, shared, node, slot.LongHash)
	return d
}

// fleetInstance is the name of an Instance, a shared one without a node.
func fleetInstance(i int, node string) string {
	d := fleetDevice(i, node, node == "")
	return d.Instance()
}

func podFor(containers, count int) *Request {
	req := &Request{Pod: Pod{UID: "p", Namespace: "ns", Name: "p"}}
	for i := range containers {
		req.Containers = append(req.Containers, ContainerRequest{Name: fmt.Sprint("c", i), Resources: []ResourceRequest{{Name: "cam", Count: count}}})
	}
	return req
}

// BenchmarkView looks at all nodes for a pod: each has Instances of its own, or all share them; they fit, or none
// does.
func BenchmarkView(b *testing.B) {
	for _, shared := range []bool{false, true} {
		for _, nodes := range []int{500, 5_000} {
			l, names := fleet(nodes, 5*nodes, shared)
			list := NewNodeList(names)
			for _, count := range []int{1, 100_000} {
				b.Run(fmt.Sprintf("shared=%v/nodes=%d/fits=%v", shared, nodes, count == 1), func(b *testing.B) {
					req := podFor(1, count)
					b.ReportAllocs()
					for b.Loop() {
						if shortfall, sure := looked(l.View(req, list)).At(nodes - 1); !sure ||
							shortfall == nil != (count == 1) {
							b.Fatal(shortfall, sure)
						}
					}
				})
			}
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
					a, shortfall := l.Draft(Spread, req.Pod).Fit(node, req)
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
// eight; also one of another Configuration, which the most important of the pods holds, or
// which nobody does who could be evicted.
func BenchmarkPreempt(b *testing.B) {
	for _, holders := range []int{1_000, 5_000} {
		l, nodes := fleet(10, holders/2, true)
		l.SetConfiguration(configurationOf("gps", akriv0.ConfigurationSpec{}))
		share(l, "gps-held", nodes...)
		share(l, "gps-claimed", nodes...)
		occupy(l, "gps-claimed", nodes[0], 0, 1)
		hold := func(uid string, priority int32, s slot.Name) {
			l.Observe(Pod{UID: uid, Namespace: "ns", Name: uid, Priority: priority}, nodes[0], Assignment{"main": {{Resource: "cam", Slot: s}}})
		}
		for i := range holders {
			hold(fmt.Sprint("p", i), 0, slot.Name{Instance: fleetInstance(i/2, ""), Index: i % 2})
		}
		hold("important", 1, slot.Name{Instance: full("gps-held")})
		for _, ask := range []struct {
			count   int
			gps     string
			victims int
		}{{1, "", 1}, {8, "", 8}, {500, "", 500}, {1, "gps", 2}, {1, "gps-claimed", 0}} {
			name := fmt.Sprintf("holders=%d/count=%d", holders, ask.count)
			req := podFor(1, ask.count)
			req.UID, req.Priority = "vip", 2
			if ask.gps != "" {
				name += "/" + ask.gps
				req.Containers[0].Resources = append(req.Containers[0].Resources, ResourceRequest{Name: full(ask.gps), Count: 1})
			}
			b.Run(name, func(b *testing.B) {
				for b.Loop() {
					p := l.Preempt(Spread, nodes[1], req, l.PotentialVictims(req).On(nodes[1]))
					if (p != nil) != (ask.victims > 0) || p != nil && len(p.Victims) != ask.victims {
						b.Fatalf("%+v", p)
					}
				}
			})
		}
	}
}

// BenchmarkUpdate is a SlotClaim's event, when its node claims a slot or gives it back.
func BenchmarkUpdate(b *testing.B) {
	for _, nodes := range []int{500, 5_000} {
		for _, shared := range []bool{false, true} {
			l, names := fleet(nodes, 5*nodes, shared)
			node := names[0]
			if shared {
				node = ""
			}
			b.Run(fmt.Sprintf("nodes=%d/shared=%v", nodes, shared), func(b *testing.B) {
				c := claimOf(slot.Name{Instance: fleetInstance(0, node)}, names[0], "p")
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					if i%2 == 0 {
						l.SetClaim(c)
					} else {
						l.DeleteClaim(c.Name)
					}
				}
			})
		}
	}
}

// BenchmarkJoin has nodes that share 100 Instances join, and then leave, one after the
// other: the work of one must hardly grow with the number of the others.
func BenchmarkJoin(b *testing.B) {
	for _, nodes := range []int{1_000, 2_000, 4_000} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			all := crowd(nodes, 100)
			b.ReportAllocs()
			for b.Loop() {
				l := ledgerOf(akriv0.ConfigurationSpec{InstanceNameDigits: slot.LongHash})
				for _, s := range all {
					l.SetSlice(s)
				}
				for _, s := range all {
					l.DeleteSlice(s.Name)
				}
			}
		})
	}
}

// crowd is the slices of nodes that all see the same devices.
func crowd(nodes, instances int) []*v1alpha1.DeviceSlice {
	all := make([]*v1alpha1.DeviceSlice, nodes)
	for n := range all {
		var devices []v1alpha1.Device
		for i := range instances {
			devices = append(devices, fleetDevice(i, "", true))
		}
		node := fmt.Sprintf("node-%05d", n*7919%nodes)
		all[n] = sliceOf(node+"-0", node, devices...)
	}
	return all
}

// BenchmarkRebuild reads a whole cluster, as after a restart: its slices, and the pods
// that have one slot of each Instance, one for each of their containers.
func BenchmarkRebuild(b *testing.B) {
	for _, size := range []struct{ nodes, instances int }{{500, 500}, {500, 5_000}, {500, 50_000}, {5_000, 50_000}} {
		nodes := fleetNodes(size.nodes)
		all := fleetSlices(nodes, size.instances, false)
		for _, containers := range []int{1, 4, 8} {
			var pods []scheduled
			for i := 0; i < size.instances; i += containers {
				a := make(Assignment, containers)
				for c := i; c < min(i+containers, size.instances); c++ {
					a[fmt.Sprint("c", c-i)] = []assignment.Grant{{Resource: "cam", Slot: slot.Name{Instance: fleetInstance(c, nodes[c%size.nodes])}}}
				}
				name := fmt.Sprintf("pod-%06x", i)
				pods = append(pods, scheduled{Pod{UID: name, Namespace: "ns", Name: name}, nodes[i%size.nodes], a})
			}
			b.Run(fmt.Sprintf("nodes=%d/instances=%d/containers=%d", size.nodes, size.instances, containers), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					l := ledgerOf(akriv0.ConfigurationSpec{Capacity: 2, InstanceNameDigits: slot.LongHash})
					for _, s := range all {
						l.SetSlice(s)
					}
					for _, p := range pods {
						l.Observe(p.pod, p.node, p.a)
					}
				}
			})
		}
	}
}

// BenchmarkBacktrack fits pods of which the first choice fails: each asks for several of few
// devices, of which Pack leaves the last ones too few different. The sizes are drawn,
// from seeds with which there are many conflicts and enough slots.
func BenchmarkBacktrack(b *testing.B) {
	for _, of := range []struct{ containers, seed int }{{5, 4991}, {15, 3275}, {45, 4961}} {
		l := ledgerOf(akriv0.ConfigurationSpec{Capacity: int32(of.containers)})
		req := podFor(of.containers, 0)
		random := rand.New(rand.NewPCG(uint64(of.seed), 0))
		slots := 0
		for i := range req.Containers {
			count := 1 + random.IntN(of.containers-1)
			req.Containers[i].Resources[0].Count = count
			slots += count
		}
		for i := range of.containers {
			share(l, fmt.Sprint("cam-", i), "a")
			occupy(l, fmt.Sprint("cam-", i), "a", 1+random.IntN(of.containers), of.containers)
		}
		b.Run(fmt.Sprintf("containers=%d/slots=%d", of.containers, slots), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, shortfall := l.Draft(Pack, req.Pod).Fit("a", req); shortfall != nil {
					b.Fatal(shortfall)
				}
			}
		})
	}
}

// unservable is a pod of 400 containers, of which the last one competes with each of the
// others, and none has what it needs.
func unservable() (*Ledger, *Request) {
	const capacity = 400
	l := ledgerOf(akriv0.ConfigurationSpec{Capacity: capacity, InstanceNameDigits: slot.LongHash})
	devices := []v1alpha1.Device{fleetDevice(0, "a", true), fleetDevice(1, "a", true)}
	req := podFor(400, 2)
	for i := range req.Containers {
		c := &req.Containers[i]
		if c.Role = Sidecar; i >= 200 {
			c.Resources[0].Count = 3
			if i < 399 {
				devices = append(devices, fleetDevice(i, "a", true))
			}
		}
	}
	req.Containers[399].Role = Init
	l.SetSlice(sliceOf("a-0", "a", devices...))
	for _, own := range devices[2:] { // each has one slot
		for i := 1; i < capacity; i++ {
			l.SetClaim(claimOf(slot.Name{Instance: own.Instance(), Index: i}, "a", "somebody"))
		}
	}
	return l, req
}

// BenchmarkSearchRefuses refuses a pod after all that a refusal may take.
func BenchmarkSearchRefuses(b *testing.B) {
	l, req := unservable()
	b.ReportAllocs()
	for b.Loop() {
		if _, shortfall := l.Draft(Spread, req.Pod).Fit("a", req); shortfall == nil {
			b.Fatal("it fits")
		}
	}
}
