package view

import (
	"fmt"
	"runtime"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// Slots that nobody has cost nothing before somebody lists them: a Configuration's author may give 10,000 to each of
// its devices.
func TestFreeSlotsCostNothing(t *testing.T) {
	const devices, capacity = 200, 10_000
	o := cluster()
	o.Configurations[0].Spec.Capacity = capacity
	o.Instances = nil
	for i := range devices {
		o.Instances = append(o.Instances, akriv0.Instance{ObjectMeta: metav1.ObjectMeta{Namespace: "default",
			Name: fmt.Sprintf("cam-%06x", i)}, Spec: akriv0.InstanceSpec{ConfigurationName: "cam", Capacity: capacity}})
	}
	o.Claims = []v1alpha1.SlotClaim{claim("cam-000007-42", "a", "p"), claim("cam-000007-43", "a", "p")}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	v := New(o)
	rows := v.Configurations()
	v.Instances()
	v.Pods()
	v.Examine(now)
	runtime.ReadMemStats(&after)
	if c := rows[0].Counts; c != (Counts{Slots: devices * capacity, Free: devices*capacity - 2, Held: 2}) {
		t.Errorf("Configurations() counts %+v", c)
	}
	if size := after.TotalAlloc - before.TotalAlloc; size > 20<<20 {
		t.Errorf("a view takes %d bytes, want at most 20 MiB", size)
	}
	listed := v.Slots()
	if len(listed) != devices*capacity || listed[7*capacity+42].Name != "cam-000007-42" ||
		listed[7*capacity+42].State != Held || listed[7*capacity+44].State != Free {
		t.Errorf("Slots() has %d slots, or others have them", len(listed))
	}
}
