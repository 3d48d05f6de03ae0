package v1alpha1

import (
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/kubeslot/kubeslot/types/slot"
)

// Names of Dynamic Resource Allocation, for Configurations with spec.allocator DRA. A device's name is its
// Instance's, which is a DNS label.
const (
	// DRADriver is the driver that publishes, and prepares, the devices.
	DRADriver = "slots.kubeslot.io"
	// DRASlots is the capacity of a device of which each result of a claim consumes some.
	DRASlots = "slots"
	// DRAMaxSlots is how many slots of a device a result has at most: no process could have a longer list of
	// them in AKRI_DEVICES.
	DRAMaxSlots = 2_000
	// DRAConfiguration and DRAInstance are attributes of each device, in the driver's domain.
	DRAConfiguration = "configuration"
	DRAInstance      = "instance"

	draHolder = "dra."
)

// DRAMinVersion is the oldest Kubernetes with all of DRA that the devices need, on by default.
var DRAMinVersion = version.MajorMinor(1, 36)

// DeviceClassName is the name of a Configuration's DeviceClass.
func DeviceClassName(configuration string) string { return configuration + "." + DRADriver }

// DeviceClassConfiguration is the Configuration whose DeviceClass has the name; "" for none.
func DeviceClassConfiguration(class string) string {
	if name, ok := strings.CutSuffix(class, "."+DRADriver); ok && !strings.Contains(name, ".") {
		return name
	}
	return ""
}

// DeviceConfiguration is the Configuration of a device of the driver; "" when no device has such a name.
func DeviceConfiguration(device string) string {
	name, hash := slot.SplitInstance(device)
	if !slot.IsHash(hash) {
		return ""
	}
	return name
}

// DRAPool is the pool of an Instance's device: of one that is not shared its Configuration's on the node, otherwise
// the device's own. An allocation names its device by driver, pool and name, so a device stays in its pool. A hash is
// in the place of a node's name with which the pool's would be too long.
func DRAPool(instance, node string, shared bool) string {
	if shared {
		return instance
	}
	pool := DeviceConfiguration(instance) + "/"
	if len(pool)+len(node) > resourceapi.PoolNameMaxLength {
		node = slot.InstanceHash(node, true, "", 32)
	}
	return pool + node
}

// DRAHolder is the holder of a slot that a ResourceClaim's result has: dra.<claim's UID>.<share's id>, or
// without the share where it has none. No pod's UID and no id of the kubelet's begins so.
func DRAHolder(claim types.UID, share *types.UID) string {
	if share == nil {
		return draHolder + string(claim)
	}
	return draHolder + string(claim) + "." + string(*share)
}

// DRAResults are the results of a ResourceClaim's allocation that are of our driver; none while it has none.
func DRAResults(c *resourceapi.ResourceClaim) []resourceapi.DeviceRequestAllocationResult {
	if c.Status.Allocation == nil {
		return nil
	}
	var ours []resourceapi.DeviceRequestAllocationResult
	for _, r := range c.Status.Allocation.Devices.Results {
		if r.Driver == DRADriver {
			ours = append(ours, r)
		}
	}
	return ours
}

// AllocatedInstances are the Instances of which a ResourceClaim has some.
func AllocatedInstances(c *resourceapi.ResourceClaim) (instances []string) {
	for _, r := range DRAResults(c) {
		instances = append(instances, r.Device)
	}
	return instances
}

// DRAAllocates reports whether the ResourceClaim is allocated slots of the Instance for the holder.
func DRAAllocates(c *resourceapi.ResourceClaim, instance, holder string) bool {
	return slices.ContainsFunc(DRAResults(c), func(r resourceapi.DeviceRequestAllocationResult) bool {
		return r.Device == instance && holder == DRAHolder(c.UID, r.ShareID)
	})
}

// PublishedInstances are the Instances in a ResourceSlice of the controller's. A slice with a node's name is the
// work of a kubelet's credentials, which must not take a device from other nodes.
func PublishedInstances(s *resourceapi.ResourceSlice) (instances []string) {
	if s.Spec.Driver != DRADriver || s.Spec.NodeName != nil {
		return nil
	}
	for i := range s.Spec.Devices {
		instances = append(instances, s.Spec.Devices[i].Name)
	}
	return instances
}

// ByDRA reports whether a ResourceClaim holds the slot.
func (s *SlotClaimSpec) ByDRA() bool {
	return s.ResourceClaim != nil || strings.HasPrefix(s.Holder, draHolder)
}
