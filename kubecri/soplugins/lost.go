package soplugins

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	apitypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/kubecri/soplugins/nodeinfo"
	"github.com/kubeslot/kubeslot/plugins/remote"
	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/device"
)

// reasonLost is of the Event of a pod whose device is lost.
const reasonLost = "DeviceLost"

// maxReason bounds why a device is lost, in bytes, of the 1024 characters of an Event's message.
const maxReason = 512

// loss is a lost resource that a pod holds.
type loss struct {
	uid      string // the pod's
	resource types.ResourceName
}

// reportLosses asks a plugin which devices that pods of the node hold are lost, and writes an Event on
// each pod, once for each loss.
func (p *Plugins) reportLosses(ctx context.Context, plugin *plugin) *Fault {
	if _, is := plugin.device.(device.LossReporter); !is || p.config.Holders == nil {
		return nil
	}
	holders, known := p.config.Holders()
	if !known {
		return nil
	}
	held := heldBy(holders)
	lost, fault := call(ctx, plugin.caller, methodLost, func(d device.Device) (map[types.ResourceName]string, error) {
		lost := maps.Clone(d.(device.LossReporter).Lost(slices.Clone(held)))
		return lost, checkLost(held, lost)
	})
	if fault != nil {
		return fault
	}
	var reasons map[remote.ContainerKey][]string
	plugin.losses, reasons = newLosses(plugin.losses, holders, lost)
	for pod, reasons := range reasons {
		for _, reason := range reasons {
			klog.FromContext(ctx).Info("Warning: a device that a pod holds is lost",
				"pod", klog.KRef(pod.Namespace, pod.Pod), "reason", reason)
			if p.config.Events != nil {
				p.config.Events.Eventf(&corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace,
					Name: pod.Pod, UID: apitypes.UID(pod.UID)}, corev1.EventTypeWarning, reasonLost,
					"device plugin %q reports a device of this pod as lost: %s", plugin.name, reason)
			}
		}
	}
	return nil
}

// heldBy returns what the containers were assigned, sorted.
func heldBy(holders []remote.Holder) []types.ResourceName {
	all := map[types.ResourceName]bool{}
	for _, h := range holders {
		for _, name := range h.AllocateFrom {
			all[name] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// checkLost says what is wrong with what a plugin says is lost of what is held.
func checkLost(held []types.ResourceName, lost map[types.ResourceName]string) error {
	for _, name := range slices.Sorted(maps.Keys(lost)) {
		if _, asked := slices.BinarySearch(held, name); !asked {
			return fmt.Errorf("%w: it says that %q is lost, which no container holds", nodeinfo.ErrInvalid, name)
		}
		if reason := lost[name]; reason == "" || len(reason) > maxReason || !utf8.ValidString(reason) {
			return fmt.Errorf("%w: it says that %q is lost for a reason of %d bytes: want UTF-8 text of 1 to %d",
				nodeinfo.ErrInvalid, name, len(reason), maxReason)
		}
	}
	return nil
}

// newLosses returns what is lost now, and the reasons of those that are not in before, by pod.
func newLosses(before map[loss]bool, holders []remote.Holder, lost map[types.ResourceName]string) (
	now map[loss]bool, reasons map[remote.ContainerKey][]string) {
	now, reasons = map[loss]bool{}, map[remote.ContainerKey][]string{}
	for _, h := range holders {
		pod := h.ContainerKey
		pod.Container = ""
		for _, name := range heldBy([]remote.Holder{h}) {
			reason, is := lost[name]
			l := loss{h.UID, name}
			if is && !before[l] && !slices.Contains(reasons[pod], reason) {
				reasons[pod] = append(reasons[pod], reason)
			}
			if is {
				now[l] = true
			}
		}
	}
	return now, reasons
}
