package view

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// large is a cluster of 500 nodes, each with 10 devices of its own of 10 slots, of which
// pods hold 8, and 500 pods that wait for more than there are on any node.
func large(b *testing.B) Objects {
	o := Objects{Configurations: []akriv0.Configuration{{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "cam", UID: "c", CreationTimestamp: long},
		Spec: akriv0.ConfigurationSpec{Capacity: 10}}}}
	for n := range 500 {
		node := fmt.Sprintf("node-%03d", n)
		o.Nodes = append(o.Nodes, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}})
		s := v1alpha1.DeviceSlice{ObjectMeta: metav1.ObjectMeta{Name: node + "-0"}, Spec: v1alpha1.DeviceSliceSpec{NodeName: node}}
		for i := range 10 {
			d := v1alpha1.Device{Configuration: v1alpha1.ConfigurationReference{Namespace: "default", Name: "cam"}, ID: fmt.Sprintf("%d-%d", n, i)}
			d.Hash = slot.InstanceHash(d.ID, false, node, 12)
			s.Spec.Devices = append(s.Spec.Devices, d)
			o.Instances = append(o.Instances, akriv0.Instance{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: d.Instance()},
				Spec: akriv0.InstanceSpec{ConfigurationName: "cam", Capacity: 10, Nodes: []string{node}}})
			for k := range 8 {
				name := fmt.Sprintf("p-%d-%d-%d", n, i, k)
				held := slot.Name{Instance: d.Instance(), Index: k}.String()
				o.Claims = append(o.Claims, claim(held, node, name))
				p := pod(name, "cam", 1)
				p.Spec.NodeName, p.Status.Phase = node, corev1.PodRunning
				p.UID = types.UID(name)
				o.Pods = append(o.Pods, p)
			}
		}
		o.Slices = append(o.Slices, s)
	}
	o.Configurations[0].Spec.InstanceNameDigits = 12
	for i := range 500 {
		waits := pod(fmt.Sprintf("waits-%d", i), "cam", 11)
		waits.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
			Message: `0/500 nodes are available: 500 node(s) reach too few Instances for akri.sh/cam: container "main" needs 11 different ones (uniqueDevices), 10 reached.`}}
		o.Pods = append(o.Pods, waits)
	}
	return o
}

func BenchmarkNew(b *testing.B) {
	o := large(b)
	for b.Loop() {
		New(o)
	}
}

func BenchmarkSlots(b *testing.B) {
	v := New(large(b))
	if n := len(v.Slots()); n != 50_000 {
		b.Fatalf("%d slots, want 50000", n)
	}
	for b.Loop() {
		v.Slots()
	}
}

func BenchmarkPods(b *testing.B) {
	v := New(large(b))
	for b.Loop() {
		v.Pods()
	}
}

// With a new view, whose ledger is made for it.
func BenchmarkWhyAPodWaits(b *testing.B) {
	o := large(b)
	for b.Loop() {
		if p, found := New(o).Pod("default", "waits-7"); !found || len(p.Waits) != 1 {
			b.Fatalf("Pod() = %+v", p.Waits)
		}
	}
}

// Pods that a scheduler without our plugins has tried, on nodes that have resources left of a Configuration that is
// gone.
func BenchmarkExamine(b *testing.B) {
	o := Objects{Configurations: []akriv0.Configuration{
		{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "cam"}}}}
	for i := range 2000 {
		n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%04d", i)}}
		n.Status.Allocatable = corev1.ResourceList{"akri.sh/gone": resource.MustParse("1")}
		o.Nodes = append(o.Nodes, n)
	}
	for i := range 5000 {
		p := pod(fmt.Sprintf("waits-%d", i), "cam", 1)
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
			Message: "0/2000 nodes are available: 2000 Insufficient akri.sh/cam."}}
		o.Pods = append(o.Pods, p)
	}
	for b.Loop() {
		if all := New(o).Examine(now); len(all) < 7000 {
			b.Fatalf("%d findings, want one of each pod and node", len(all))
		}
	}
}
