package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/component-base/metrics/testutil"

	"github.com/kubeslot/kubeslot/types"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/client/clientset/versioned"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

const (
	kind             = "cam"
	namespace        = metav1.NamespaceDefault
	slotsPerInstance = 2
	writers          = 16 // objects that are created at the same time
)

func nodeName(i int) string { return fmt.Sprintf("node-%05d", i) }

// create calls one for 0 to n-1, several at a time.
func create(ctx context.Context, n int, one func(context.Context, int) error) error {
	errs := make([]error, n)
	workqueue.ParallelizeUntil(ctx, writers, n, func(i int) { errs[i] = one(ctx, i) })
	for i, err := range errs {
		if err != nil {
			return fmt.Errorf("object %d of %d: %w", i+1, n, err)
		}
	}
	return ctx.Err()
}

func (a *arm) createNode(ctx context.Context, i int) error {
	capacity := v1.ResourceList{
		v1.ResourcePods:   resource.MustParse("110"),
		v1.ResourceCPU:    resource.MustParse("32"),
		v1.ResourceMemory: resource.MustParse("256Gi"),
	}
	if a.onNode {
		capacity[a.resource] = *resource.NewQuantity(int64(a.slots), resource.DecimalSI)
	}
	annotations, err := a.nodeAnnotations()
	if err != nil {
		return err
	}
	nodes := a.client.CoreV1().Nodes()
	node, err := nodes.Create(ctx, &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: nodeName(i), Annotations: annotations,
			Labels: map[string]string{v1.LabelHostname: nodeName(i)}},
		Status: v1.NodeStatus{
			Capacity: capacity, Allocatable: capacity,
			Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	node.Spec.Taints = nil // admission has added that it is not ready
	_, err = nodes.Update(ctx, node, metav1.UpdateOptions{})
	return err
}

// devicesOf are the devices of a node, with what a discovered one has in it.
func (a *arm) devicesOf(node string) []v1alpha1.Device {
	var devices []v1alpha1.Device
	for n := range a.slots / slotsPerInstance {
		id := fmt.Sprintf("device-%d", n)
		devices = append(devices, v1alpha1.Device{
			Configuration: v1alpha1.ConfigurationReference{Namespace: namespace, Name: kind},
			ID:            id, Hash: slot.InstanceHash(id, false, node, slot.LongHash),
			Properties: map[string]string{"MODEL": "A100", "FAMILY": "GPU", "DRIVER_VERSION": "1.2.3"},
		})
	}
	return devices
}

// createDevices creates as many as nodes have slots.
func (a *arm) createDevices(ctx context.Context) error {
	switch {
	case a.ours:
		return a.createDeviceSlices(ctx)
	case a.dra:
		return a.createResourceSlices(ctx)
	}
	return nil // the nodes report them
}

func (a *arm) createDeviceSlices(ctx context.Context) error {
	client, err := versioned.NewForConfig(a.config)
	if err != nil {
		return err
	}
	if _, err := client.AkriV0().Configurations(namespace).Create(ctx, &akriv0.Configuration{
		ObjectMeta: metav1.ObjectMeta{Name: kind},
		Spec: akriv0.ConfigurationSpec{DiscoveryHandler: akriv0.DiscoveryHandlerInfo{Name: "debugEcho"},
			Capacity: slotsPerInstance, InstanceNameDigits: slot.LongHash},
	}, metav1.CreateOptions{}); err != nil {
		return err
	}
	return create(ctx, a.nodes, func(ctx context.Context, i int) error {
		node, err := a.client.CoreV1().Nodes().Get(ctx, nodeName(i), metav1.GetOptions{})
		if err != nil {
			return err
		}
		part := 0
		for devices := range slices.Chunk(a.devicesOf(node.Name), v1alpha1.MaxDevices) {
			if _, err := client.KubeslotV1alpha1().DeviceSlices().Create(ctx, &v1alpha1.DeviceSlice{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", node.Name, part),
					OwnerReferences: []metav1.OwnerReference{v1alpha1.NodeOwner(node.Name, node.UID)}},
				Spec: v1alpha1.DeviceSliceSpec{NodeName: node.Name, Devices: devices},
			}, metav1.CreateOptions{}); err != nil {
				return err
			}
			part++
		}
		return nil
	})
}

func (a *arm) createResourceSlices(ctx context.Context) error {
	const driver = "gpu.example.com"
	name := string(a.resource)
	if _, err := a.client.ResourceV1().DeviceClasses().Create(ctx, &resourceapi.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: kind},
		Spec: resourceapi.DeviceClassSpec{
			ExtendedResourceName: &name,
			Selectors: []resourceapi.DeviceSelector{{
				CEL: &resourceapi.CELDeviceSelector{Expression: fmt.Sprintf("device.driver == %q", driver)},
			}},
		},
	}, metav1.CreateOptions{}); err != nil {
		return err
	}
	return create(ctx, a.nodes, func(ctx context.Context, i int) error {
		node, model := nodeName(i), "A100"
		slice := &resourceapi.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Name: node},
			Spec: resourceapi.ResourceSliceSpec{
				Driver: driver, NodeName: &node, Pool: resourceapi.ResourcePool{Name: node, ResourceSliceCount: 1},
			},
		}
		for n := range a.slots {
			slice.Spec.Devices = append(slice.Spec.Devices, resourceapi.Device{
				Name:       fmt.Sprintf("device-%d", n),
				Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"model": {StringValue: &model}},
			})
		}
		_, err := a.client.ResourceV1().ResourceSlices().Create(ctx, slice, metav1.CreateOptions{})
		return err
	})
}

// createPods creates n further pods.
func (a *arm) createPods(ctx context.Context, n int) error {
	first := a.created
	a.created += n
	amount := v1.ResourceList{a.resource: resource.MustParse("1")}
	if err := create(ctx, n, func(ctx context.Context, i int) error {
		_, err := a.client.CoreV1().Pods(namespace).Create(ctx, &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pod-%05d", first+i)},
			Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main", Image: "registry.k8s.io/pause:3.10.1",
				Resources: v1.ResourceRequirements{Requests: amount, Limits: amount}}}},
		}, metav1.CreateOptions{})
		return err
	}); err != nil {
		return fmt.Errorf("create pods: %w", err)
	}
	return nil
}

// checkBound says which of the pods are not bound, or under our scheduler have no assignment.
func (a *arm) checkBound(ctx context.Context, _ testutil.Metrics) error {
	pods, err := a.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{FieldSelector: bound.String()})
	if err != nil {
		return err
	}
	var errs []error
	if len(pods.Items) != a.created {
		errs = append(errs, fmt.Errorf("%d of %d pods are bound", len(pods.Items), a.created))
	}
	holders := map[string]string{} // pods by what they were assigned
	for i := range pods.Items {
		pod := &pods.Items[i]
		if a.stock() {
			continue
		}
		info, err := assignment.Granted(pod.Annotations, string(pod.UID), pod.Spec.NodeName)
		if err != nil || info == nil {
			errs = append(errs, fmt.Errorf("pod %s has no assignment, error %v", pod.Name, err))
			continue
		}
		container := info.RunningContainers["main"]
		assigned, err := a.assigned(&container)
		if key := pod.Spec.NodeName + "/" + assigned; err != nil || holders[key] != "" {
			errs = append(errs, fmt.Errorf("pod %s: want one device that no other pod has, got %s as pod %q, error %v",
				pod.Name, key, holders[key], err))
		} else {
			holders[key] = pod.Name
		}
	}
	return errors.Join(errs...)
}

// assigned is the one device that the container was assigned.
func (a *arm) assigned(c *types.ContainerInfo) (string, error) {
	if a.widgets {
		return assignedWidget(c)
	}
	grants, err := assignment.Grants(c)
	if err != nil || len(grants) != 1 {
		return "", fmt.Errorf("want one slot, got %v, error %v", grants, err)
	}
	return grants[0].Slot.String(), nil
}
