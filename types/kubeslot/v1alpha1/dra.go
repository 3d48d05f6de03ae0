package v1alpha1

import (
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeslot/kubeslot/types/slot"
)

// Names of Dynamic Resource Allocation, for Configurations with spec.allocator DRA. A device's name is its
// Instance's, which is a DNS label.
const (
	// DRADriver is the driver that publishes, and prepares, the devices.
	DRADriver = "slots.kubeslot.io"
	// DRASlots is the capacity of a device of which each result of a claim consumes some.
	DRASlots = "slots"
	// DRAConfiguration and DRAInstance are attributes of each device, in the driver's domain.
	DRAConfiguration = "configuration"
	DRAInstance      = "instance"

	draHolder = "dra."
)

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

// DRAHolder is the holder of a slot that a ResourceClaim's result has: dra.<claim's UID>.<share's id>, or
// without the share where it has none. No pod's UID and no id of the kubelet's begins so.
func DRAHolder(claim types.UID, share *types.UID) string {
	if share == nil {
		return draHolder + string(claim)
	}
	return draHolder + string(claim) + "." + string(*share)
}

// ByDRA reports whether a ResourceClaim holds the slot.
func (s *SlotClaimSpec) ByDRA() bool {
	return s.ResourceClaim != nil || strings.HasPrefix(s.Holder, draHolder)
}
