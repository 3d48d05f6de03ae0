package main

import (
	"context"
	"fmt"

	"k8s.io/client-go/tools/cache"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubelettypes "k8s.io/kubelet/pkg/types"

	kubeslotinformers "github.com/kubeslot/kubeslot/types/client/informers/externalversions/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// countReports counts the devices that all nodes report.
func (b *bench) countReports(ctx context.Context) (count func() int, stop func(), err error) {
	informer := kubeslotinformers.NewDeviceSliceInformer(b.client, 0, nil)
	stop, err = follow(ctx, informer)
	return func() (n int) {
		for _, obj := range informer.GetStore().List() {
			n += len(obj.(*v1alpha1.DeviceSlice).Spec.Devices)
		}
		return n
	}, stop, err
}

// watchClaims watches all claims, as the scheduler does. there returns an error unless
// the claim is, or is not, among those that the watcher knows.
func (b *bench) watchClaims(ctx context.Context) (there func(name string, want bool) error, stop func(), err error) {
	informer := kubeslotinformers.NewSlotClaimInformer(b.client, 0, nil)
	stop, err = follow(ctx, informer)
	return func(name string, want bool) error {
		if _, exists, err := informer.GetStore().GetByKey(name); err != nil || exists != want {
			return fmt.Errorf("%s: there is %v, want %v (%w)", name, exists, want, err)
		}
		return nil
	}, stop, err
}

// follow runs an informer until stop is called, and returns when it has synced.
func follow(ctx context.Context, informer cache.SharedIndexInformer) (stop func(), err error) {
	ctx, stop = context.WithCancel(ctx)
	go informer.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		stop()
		return nil, ctx.Err()
	}
	return stop, nil
}

// container is what the runtime says of a pod's container with one slot.
func container(node, id, podUID string, name slot.Name) *runtimeapi.Container {
	key, value := slot.Annotation(name, podUID)
	return &runtimeapi.Container{
		Id: id, PodSandboxId: "sandbox-" + id, State: runtimeapi.ContainerState_CONTAINER_RUNNING,
		Labels: map[string]string{
			kubelettypes.KubernetesPodNamespaceLabel: namespace, kubelettypes.KubernetesPodNameLabel: "pod-of-" + node,
			kubelettypes.KubernetesPodUIDLabel: podUID, kubelettypes.KubernetesContainerNameLabel: "app",
		},
		Annotations: map[string]string{key: value},
	}
}
