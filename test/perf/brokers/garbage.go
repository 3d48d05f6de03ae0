package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/kubeslot/kubeslot/controller/naming"
	"github.com/kubeslot/kubeslot/types/client/clientset/versioned"
	"github.com/kubeslot/kubeslot/types/client/informers/externalversions"
)

// byInstance is the index of broker pods by their Instance.
const byInstance = "instance"

var podIndexers = cache.Indexers{byInstance: func(o any) ([]string, error) {
	return []string{o.(*corev1.Pod).Labels[naming.Instance]}, nil
}}

// collectGarbage deletes the pods and the Service of each Instance that is deleted, as the garbage
// collector does, which does not run here, until ctx is done.
func (k *kubelets) collectGarbage(ctx context.Context, akri versioned.Interface) error {
	factory := externalversions.NewSharedInformerFactoryWithOptions(akri, 0, externalversions.WithNamespace(namespace))
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	instances := factory.Akri().V0().Instances().Informer()
	_, err := instances.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(o any) {
		if key, err := cache.DeletionHandlingObjectToName(o); err == nil {
			queue.Add(key.Name)
		}
	}})
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	go func() { <-ctx.Done(); queue.ShutDown() }()
	for range kubeletWorkers {
		go func() {
			for {
				instance, end := queue.Get()
				if end {
					return
				}
				if err := k.removeOf(ctx, instance); err != nil && ctx.Err() == nil {
					k.fail(fmt.Errorf("garbage of Instance %s: %w", instance, err))
					queue.AddRateLimited(instance)
				}
				queue.Done(instance)
			}
		}()
	}
	return ctx.Err()
}

// removeOf deletes the pods and the Service of an Instance.
func (k *kubelets) removeOf(ctx context.Context, instance string) error {
	pods, err := k.indexer.ByIndex(byInstance, instance)
	if err != nil {
		return err
	}
	for _, p := range pods {
		if err := k.remove(ctx, p.(*corev1.Pod)); err != nil {
			return err
		}
	}
	err = k.client.CoreV1().Services(namespace).Delete(ctx, naming.Service(instance), metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
