package view

import (
	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
)

// account returns the scheduler's ledger of the objects: what decides there says here
// why a pod waits. It is nil for a user who may not list DeviceSlices.
func (v *View) account() *ledger.Ledger {
	v.accounted.Do(func() {
		if len(v.objects.Slices) == 0 {
			return
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
			if pod.Spec.NodeName == "" || ended(pod) {
				continue
			}
			held, _ := v.held(pod) // an error is of a container that is not created
			if len(held) == 0 {
				continue
			}
			l.Observe(podKey(pod), pod.Spec.NodeName, held)
			if pod.DeletionTimestamp != nil {
				l.SetTerminating(string(pod.UID))
			}
		}
		v.ledger = l
	})
	return v.ledger
}
