package main

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubeslot/kubeslot/controller/naming"
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
	collect := time.NewTicker(time.Second)
	defer collect.Stop()
	return b.restartController(ctx, "the controller was away while devices changed", func() error {
		select {
		case <-collect.C:
			if err := b.collectGarbage(ctx); err != nil {
				return err
			}
		default:
		}
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

// collectGarbage deletes the pods and Services whose Instance is gone, as the garbage collector does,
// which does not run here.
func (b *bench) collectGarbage(ctx context.Context) error {
	list, err := b.akri.AkriV0().Instances(namespace).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return err
	}
	exists := make(map[string]bool, len(list.Items))
	for i := range list.Items {
		exists[list.Items[i].Name] = true
	}
	pods, err := b.kubelets.pods.List(labels.Everything())
	if err != nil {
		return err
	}
	for _, p := range pods {
		if exists[p.Labels[naming.Instance]] || p.DeletionTimestamp != nil {
			continue
		}
		if err := b.kubelets.remove(ctx, p); err != nil {
			return err
		}
	}
	services, err := b.kube.CoreV1().Services(namespace).List(ctx, metav1.ListOptions{LabelSelector: naming.Instance})
	if err != nil {
		return err
	}
	for i := range services.Items {
		service := &services.Items[i]
		if exists[service.Labels[naming.Instance]] {
			continue
		}
		err := b.kube.CoreV1().Services(namespace).Delete(ctx, service.Name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}
