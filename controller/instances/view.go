package instances

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeslot/kubeslot/controller/inventory"
	"github.com/kubeslot/kubeslot/controller/naming"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/slot"
)

const (
	maxProblems      = 16 // MaxItems of status.problems
	maxProblemLength = 512
)

// view returns the Instance of a device that is known of, given what it is now;
// existing is nil when there is none, and is not changed. Labels and annotations are
// not the view's. Of a device that no node reports any more, whose claims still stand,
// what was reported last is kept.
func view(key types.NamespacedName, d inventory.Device, existing *akriv0.Instance) *akriv0.Instance {
	configuration := d.Configuration
	_, hash := slot.SplitInstance(key.Name)
	instance := &akriv0.Instance{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	if existing != nil {
		instance = existing.DeepCopy()
	}
	instance.OwnerReferences = []metav1.OwnerReference{naming.OwnedBy("Configuration", configuration)}
	instance.Finalizers = finalizersOfGC(instance.Finalizers)
	instance.Spec = akriv0.InstanceSpec{
		ConfigurationName: configuration.Name,
		CDIName:           akriv0.GroupName + "/" + configuration.Name + "=" + hash,
		Capacity:          int32(configuration.Spec.Slots()),
		BrokerProperties:  instance.Spec.BrokerProperties,
		Shared:            instance.Spec.Shared,
		Nodes:             slices.Clone(d.Nodes[:min(len(d.Nodes), akriv0.MaxInstanceNodes)]),
		DeviceUsage:       usage(key.Name, d),
	}
	if reported := d.Reported; reported != nil {
		instance.Spec.BrokerProperties, instance.Spec.Shared = d.BrokerProperties(), reported.Shared
	}
	instance.Status = akriv0.InstanceStatus{Device: instance.Status.Device, FreeSlots: free(instance.Spec.Capacity, instance.Spec.DeviceUsage),
		NodeCount: int32(len(d.Nodes)), Problems: problems(d)}
	if d.Reported != nil {
		instance.Status.Device = d.Reported.ID
	}
	return instance
}

// usage lists the slots that are claimed, also those beyond the capacity: it was larger
// when they were. Of an Instance that is not too large it lists the free ones, too.
func usage(instance string, d inventory.Device) map[string]string {
	capacity := d.Configuration.Spec.Slots()
	used := map[string]string{}
	if capacity <= akriv0.MaxListedCapacity {
		for i := range capacity {
			used[slot.Name{Instance: instance, Index: i}.String()] = ""
		}
	}
	for _, c := range d.Claims {
		_, reaches := slices.BinarySearch(d.Nodes, c.Spec.NodeName)
		if c.DoesNotCount == nil || reaches && c.Index >= capacity {
			used[c.Name] = c.Spec.Usage().String()
		}
	}
	return used
}

// free counts the slots within the capacity that nobody has claimed.
func free(capacity int32, usage map[string]string) int32 {
	held := int32(0)
	for name, use := range usage {
		if s, err := slot.Parse(name); use != "" && err == nil && s.Index < int(capacity) {
			held++
		}
	}
	return capacity - held
}

// problems says what is wrong with reports and claims of the device, in an order that
// stays, and that there are more when there are too many.
func problems(d inventory.Device) []string {
	var all []string
	if d.Reported == nil {
		all = append(all, "no node sees the device; the Instance stays while its slots are claimed")
	}
	all = append(all, d.LeftOut...)
	for _, c := range d.Claims {
		if c.DoesNotCount != nil {
			all = append(all, fmt.Sprintf("the claim of slot %s by node %s%s does not count: %v", c.Name, c.Spec.NodeName, forPod(c), c.DoesNotCount))
		}
	}
	all = slices.Compact(all)
	if len(all) > maxProblems {
		all = append(all[:maxProblems-1], "there are more problems than these")
	}
	for i, p := range all {
		all[i] = naming.CutText(p, maxProblemLength)
	}
	return all
}

func forPod(c inventory.Claim) string {
	if c.Spec.Pod == nil {
		return ""
	}
	return fmt.Sprintf(" for pod %s/%s", c.Spec.Pod.Namespace, c.Spec.Pod.Name)
}

// finalizersOfGC keeps the garbage collector's own finalizers. Akri's agents set
// others, their nodes' names, which nobody would take off once they are gone.
func finalizersOfGC(finalizers []string) []string {
	return slices.DeleteFunc(slices.Clone(finalizers), func(f string) bool {
		return f != metav1.FinalizerOrphanDependents && f != metav1.FinalizerDeleteDependents
	})
}
