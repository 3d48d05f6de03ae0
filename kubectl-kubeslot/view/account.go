package view

import (
	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/kube-scheduler/slotrequest"
)

// makeLedger makes the scheduler's ledger of the objects, which account returns: what decides there says here
// why a pod waits. It is nil for a user who may not list DeviceSlices.
func (v *View) makeLedger() *ledger.Ledger {
	if len(v.objects.Slices) == 0 {
		return nil
	}
	l := ledger.New()
	for i := range v.objects.Configurations {
		l.SetConfiguration(&v.objects.Configurations[i])
	}
	for i := range v.objects.Nodes {
		l.SetNode(v.objects.Nodes[i].Name, v.objects.Nodes[i].Labels)
	}
	for i := range v.objects.Slices {
		l.SetSlice(&v.objects.Slices[i])
	}
	for i := range v.objects.Claims {
		l.SetClaim(&v.objects.Claims[i])
	}
	for i := range v.objects.Pods {
		pod := &v.objects.Pods[i]
		if v.held[pod] == nil {
			continue
		}
		l.Observe(slotrequest.PodOf(pod), pod.Spec.NodeName, v.held[pod])
		if pod.DeletionTimestamp != nil {
			l.SetTerminating(string(pod.UID))
		}
	}
	return l
}
