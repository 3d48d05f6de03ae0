package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listersv1 "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/kubeslot/kubeslot/controller/naming"
)

// brokenImage is of brokers that run, and never become Ready.
const brokenImage = "broken"

// kubelets do with broker pods what a scheduler and the nodes' kubelets do: each is bound
// to the node that it is pinned to, runs and becomes Ready at once, and is gone as soon as
// it is deleted.
type kubelets struct {
	client  kubernetes.Interface
	pods    listersv1.PodLister
	indexer cache.Indexer // of the same pods
	queue   workqueue.TypedRateLimitingInterface[types.NamespacedName]

	mu     sync.Mutex
	failed error // the first
}

const kubeletWorkers = 16

// startKubelets works until ctx is done.
func startKubelets(ctx context.Context, client kubernetes.Interface) (*kubelets, error) {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = naming.Controller + "=" + naming.ControllerName }))
	informer := factory.Core().V1().Pods()
	if err := informer.Informer().AddIndexers(podIndexers); err != nil {
		return nil, err
	}
	again := workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](100*time.Millisecond,
		time.Second)
	k := &kubelets{client: client, pods: informer.Lister(), indexer: informer.Informer().GetIndexer(),
		queue: workqueue.NewTypedRateLimitingQueue(again)}
	add := func(o any) {
		if p, ok := o.(*corev1.Pod); ok {
			k.queue.Add(types.NamespacedName{Namespace: p.Namespace, Name: p.Name})
		}
	}
	if _, err := informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: add, UpdateFunc: func(_, now any) { add(now) }}); err != nil {
		return nil, err
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	go func() { <-ctx.Done(); k.queue.ShutDown() }()
	for range kubeletWorkers {
		go k.work(ctx)
	}
	return k, ctx.Err()
}

func (k *kubelets) work(ctx context.Context) {
	for {
		key, end := k.queue.Get()
		if end {
			return
		}
		if err := k.tend(ctx, key); err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			k.queue.Forget(key)
		} else if ctx.Err() == nil {
			k.fail(fmt.Errorf("pod %s: %w", key, err))
			k.queue.AddRateLimited(key)
		}
		k.queue.Done(key)
	}
}

// fail keeps the first error.
func (k *kubelets) fail(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.failed == nil {
		k.failed = err
	}
}

// err is the first error of a pod or an Instance, if there was any.
func (k *kubelets) err() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.failed
}

// tend does the next thing for a pod; the event of it brings the one after.
func (k *kubelets) tend(ctx context.Context, key types.NamespacedName) error {
	p, err := k.pods.Pods(key.Namespace).Get(key.Name)
	if err != nil {
		return err
	}
	pods := k.client.CoreV1().Pods(p.Namespace)
	switch {
	case p.DeletionTimestamp != nil:
		return k.remove(ctx, p)
	case p.Spec.NodeName == "":
		node := p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields[0].Values[0]
		return pods.Bind(ctx, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: p.Name, UID: p.UID}, Target: corev1.ObjectReference{Kind: "Node", Name: node}}, metav1.CreateOptions{})
	case p.Status.Phase == corev1.PodPending:
		ready := corev1.ConditionTrue
		if p.Spec.Containers[0].Image == brokenImage {
			ready = corev1.ConditionFalse
		}
		patch := fmt.Sprintf(`{"metadata":{"uid":%q},"status":{"phase":"Running","startTime":%q,"conditions":[{"type":"Ready","status":%q}]}}`,
			p.UID, time.Now().UTC().Format(time.RFC3339), ready)
		_, err := pods.Patch(ctx, p.Name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
		return err
	}
	return nil
}

// remove deletes a pod at once.
func (k *kubelets) remove(ctx context.Context, p *corev1.Pod) error {
	err := k.client.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name,
		metav1.DeleteOptions{GracePeriodSeconds: new(int64), Preconditions: &metav1.Preconditions{UID: &p.UID}})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // gone
		return nil
	}
	return err
}

// count is of the broker pods there are: of an image, those that are Ready, and all.
func (k *kubelets) count(image string) (ready, all int) {
	list, err := k.pods.List(labels.Everything())
	if err != nil {
		return 0, 0 // a cache's lister has no errors
	}
	for _, p := range list {
		all++
		if p.Spec.Containers[0].Image == image && isReady(p) {
			ready++
		}
	}
	return ready, all
}

func isReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue && p.DeletionTimestamp == nil
		}
	}
	return false
}
