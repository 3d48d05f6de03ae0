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

// watchReports returns a function that waits until all nodes together report so many devices.
func (b *bench) watchReports(ctx context.Context) (reported func(ctx context.Context, want int) error, stop func(), err error) {
	informer := kubeslotinformers.NewDeviceSliceInformer(b.client, 0, nil)
	changed, stop, err := follow(ctx, informer)
	return func(ctx context.Context, want int) error {
		return changed.await(ctx, "all nodes have reported the devices", func() error {
			n := 0
			for _, obj := range informer.GetStore().List() {
				n += len(obj.(*v1alpha1.DeviceSlice).Spec.Devices)
			}
			if n < want {
				return fmt.Errorf("%d of %d reports are there", n, want)
			}
			return nil
		})
	}, stop, err
}

// watchClaims watches all claims, as the scheduler does. known waits until the watcher knows
// that there is a claim of the slot, or that there is none.
func (b *bench) watchClaims(ctx context.Context) (known func(ctx context.Context, name slot.Name, want bool) error, stop func(), err error) {
	informer := kubeslotinformers.NewSlotClaimInformer(b.client, 0, nil)
	changed, stop, err := follow(ctx, informer)
	return func(ctx context.Context, name slot.Name, want bool) error {
		return changed.await(ctx, "the watcher knows of the claim", func() error {
			if _, exists, err := informer.GetStore().GetByKey(name.String()); err != nil || exists != want {
				return fmt.Errorf("%s: there is %v, want %v (%w)", name, exists, want, err)
			}
			return nil
		})
	}, stop, err
}

// changes says that a cache has changed, once for several changes.
type changes chan struct{}

// await waits until done returns nil; it looks after each change.
func (c changes) await(ctx context.Context, what string, done func() error) error {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	for {
		last := done()
		if last == nil {
			return nil
		}
		select {
		case <-c:
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w; last seen: %w", what, ctx.Err(), last)
		}
	}
}

// follow runs an informer until stop is called, and returns when it has synced.
func follow(ctx context.Context, informer cache.SharedIndexInformer) (changed changes, stop func(), err error) {
	changed = make(changes, 1)
	notify := func(any) {
		select {
		case changed <- struct{}{}:
		default: // it is to be looked at already
		}
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: notify, UpdateFunc: func(_, obj any) { notify(obj) }, DeleteFunc: notify,
	}); err != nil {
		return nil, nil, err
	}
	ctx, stop = context.WithCancel(ctx)
	go informer.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		stop()
		return nil, nil, ctx.Err()
	}
	return changed, stop, nil
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
