package soplugins

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	apitypes "k8s.io/apimachinery/pkg/types"

	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/contain"
	"github.com/kubeslot/kubeslot/types/device"
)

// reasonLost is of the Event of a pod whose device is lost.
const reasonLost = "DeviceLost"

// maxReason bounds why a device is lost, in bytes, of the 1024 that an Event's message may have.
const maxReason = 512

// loss is a pod's, by its UID, for a reason.
type loss struct{ uid, reason string }

// reportLosses asks a plugin which devices that pods of the node hold are lost, and writes an Event on
// each pod, once for each reason while that lasts.
func (p *Plugins) reportLosses(ctx context.Context, plugin *plugin) *Fault {
	if _, is := plugin.device.(device.LossReporter); !is || p.config.Holders == nil {
		return nil
	}
	holders, known := p.config.Holders()
	if !known {
		return nil
	}
	held := map[types.ResourceName]bool{}
	for _, h := range holders {
		for _, name := range h.GetAllocateFrom() {
			held[types.ResourceName(name)] = true
		}
	}
	lost, fault := call(ctx, plugin.caller, methodLost, func(d device.Device) (map[types.ResourceName]string, error) {
		lost := maps.Clone(d.(device.LossReporter).Lost(slices.Sorted(maps.Keys(held))))
		for name, reason := range lost {
			if !held[name] || reason == "" || len(reason) > maxReason || !utf8.ValidString(reason) {
				return nil, fmt.Errorf("%w: it says that %q is lost, for a reason of %d bytes: "+
					"want what a container holds, and a text of 1 to %d bytes",
					contain.ErrInvalid, name, len(reason), maxReason)
			}
		}
		return lost, nil
	})
	if fault != nil {
		return fault
	}
	before := plugin.losses
	plugin.losses = map[loss]bool{}
	for _, h := range holders {
		for _, name := range slices.Sorted(maps.Values(h.GetAllocateFrom())) {
			l := loss{h.GetUid(), lost[types.ResourceName(name)]}
			if l.reason == "" || plugin.losses[l] {
				continue
			}
			plugin.losses[l] = true
			if !before[l] && p.config.Events != nil {
				p.config.Events.Eventf(&corev1.ObjectReference{APIVersion: "v1", Kind: "Pod",
					Namespace: h.GetNamespace(), Name: h.GetPod(), UID: apitypes.UID(h.GetUid())},
					corev1.EventTypeWarning, reasonLost,
					"device plugin %q reports a device of this pod as lost: %s", plugin.name, l.reason)
			}
		}
	}
	return nil
}
