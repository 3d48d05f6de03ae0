package main

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// What is old after the controller was away does not depend on how long it was: of ten devices one is
// gone, and one has another property. (Kubernetes' watches end after an hour, so it lists everything
// anew; so does each controller that starts.)
const (
	awayGone, awayChanged = 3, 7 // the devices' numbers, modulo 10
	awayURL               = "http://10.0.0.2/"
)

// measureAway ends the controller, changes devices, and starts it again.
func (b *bench) measureAway(ctx context.Context) (cost, error) {
	if err := b.endController(); err != nil {
		return cost{}, err
	}
	if err := b.changeDevices(ctx); err != nil {
		return cost{}, err
	}
	left := b.instances - b.instances/10
	return b.restartController(ctx, "the controller was away while devices changed", func() error {
		if _, all := b.kubelets.count(""); all != b.arm.brokers(left) {
			return fmt.Errorf("there are %d brokers, want %d", all, b.arm.brokers(left))
		}
		return b.statusSays(ctx, left)
	})
}

// changeDevices takes devices out of all slices, and changes the property of others.
func (b *bench) changeDevices(ctx context.Context) error {
	slices := b.akri.KubeslotV1alpha1().DeviceSlices()
	return parallel(ctx, b.options.nodes, func(i int) error {
		list, err := slices.List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + nodeName(i)})
		if err != nil {
			return err
		}
		for j := range list.Items {
			s := &list.Items[j]
			var kept []v1alpha1.Device
			for _, d := range s.Spec.Devices {
				switch deviceNumber(d.ID) % 10 {
				case awayGone:
					continue
				case awayChanged:
					d.Properties = map[string]string{urlProperty: awayURL + d.ID}
				}
				kept = append(kept, d)
			}
			s.Spec.Devices = kept
			if _, err := slices.Update(ctx, s, metav1.UpdateOptions{}); err != nil {
				return err
			}
		}
		return nil
	})
}
