// Package nodewriter writes what kubecri says on this node's Node object: the parts, such as the
// advertiser, say what is to change, and one patch of the status subresource, which takes labels and
// annotations as well, has it all. Nothing is written that the Node says already, so an idle node
// costs no writes.
package nodewriter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kubeslot/kubeslot/kubecri/informers"
	"github.com/kubeslot/kubeslot/kubecri/metrics"
	"github.com/kubeslot/kubeslot/kubecri/ownwrites"
)

const (
	// DefaultInterval is how often the node is looked at without any change.
	DefaultInterval = time.Minute
	// minRetry and maxRetry bound the wait after a patch that failed.
	minRetry, maxRetry = 100 * time.Millisecond, time.Minute
	// At most patchBurst patches follow each other, patchGap apart; after that one every patchInterval.
	// A thousand nodes may see the same device.
	patchBurst, patchGap, patchInterval = 10, 100 * time.Millisecond, time.Second
)

// Config is what a Writer needs. Node, Client and Nodes are required.
type Config struct {
	Node   string
	Client kubernetes.Interface
	// Nodes needs to hold no more than this node. Whoever made the informer starts it, after New.
	Nodes coreinformers.NodeInformer
	// Interval is DefaultInterval when 0.
	Interval time.Duration
	Metrics  *metrics.Metrics
	Clock    clock.WithTicker
}

// Plan says what a part has to change on the node, and after what time to ask it again without any
// change; 0 for not before the next look. Also with an error the patch is written.
type Plan func(ctx context.Context, node *corev1.Node) (Patch, time.Duration, error)

// Writer keeps what kubecri says on one Node. Safe for concurrent use.
type Writer struct {
	config Config
	// queue holds the node's name when something has changed.
	queue  workqueue.TypedRateLimitingInterface[string]
	limit  flowcontrol.RateLimiter
	own    *ownwrites.Writes[*corev1.Node]
	parts  []part
	synced []cache.InformerSynced

	mu         sync.Mutex
	conditions map[string]Condition // by type
}

type part struct {
	name string
	plan Plan
}

// New makes a Writer, which Run starts.
func New(config Config) (*Writer, error) {
	switch {
	case config.Node == "", config.Client == nil, config.Nodes == nil:
		return nil, errors.New("nodewriter: node, client and informer are required")
	case config.Interval < 0:
		return nil, errors.New("nodewriter: Interval is negative")
	case config.Interval == 0:
		config.Interval = DefaultInterval
	}
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	w := &Writer{config: config, own: ownwrites.New[*corev1.Node](config.Clock), conditions: map[string]Condition{},
		limit: flowcontrol.NewTokenBucketRateLimiterWithClock(float32(1/patchInterval.Seconds()), patchBurst,
			config.Clock),
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](minRetry, maxRetry),
			workqueue.TypedRateLimitingQueueConfig[string]{Clock: config.Clock})}
	changed := func(node *corev1.Node, gone bool) {
		if gone {
			w.own.Gone(node.Name, node.UID)
			return
		}
		w.Wake()
	}
	w.synced = []cache.InformerSynced{informers.Handle(config.Nodes.Informer(), informers.Each(changed))}
	return w, nil
}

// Add adds a part, before Run, which waits until all have synced.
func (w *Writer) Add(name string, plan Plan, synced ...cache.InformerSynced) {
	w.parts = append(w.parts, part{name, plan})
	w.synced = append(w.synced, synced...)
}

// Wake has the node looked at now. It does not block.
func (w *Writer) Wake() { w.queue.Add(w.config.Node) }

// WakeAfter has the node looked at after a while; changes until then count once.
func (w *Writer) WakeAfter(d time.Duration) { w.queue.AddAfter(w.config.Node, d) }

// Run works until ctx ends. It writes nothing before it has seen everything.
func (w *Writer) Run(ctx context.Context) {
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithName("nodewriter").WithValues("node", w.config.Node))
	var worker sync.WaitGroup
	defer worker.Wait()
	defer w.queue.ShutDown()
	if !cache.WaitForCacheSync(ctx.Done(), w.synced...) {
		return // ctx has ended
	}
	worker.Go(func() {
		for w.next(ctx) {
		}
	})
	wait.UntilWithContext(ctx, func(context.Context) { w.Wake() }, w.config.Interval)
}

func (w *Writer) next(ctx context.Context) bool {
	name, shutdown := w.queue.Get()
	if shutdown {
		return false
	}
	defer w.queue.Done(name)
	if err := w.look(ctx); err != nil {
		if ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Cannot write all that the node is to say, trying again")
		}
		w.queue.AddRateLimited(name)
		return true
	}
	w.queue.Forget(name)
	return true
}

// change is what a part has to change.
type change struct {
	part  string
	patch Patch
}

// look compares the node with what it is to say, and patches it if need be.
func (w *Writer) look(ctx context.Context) error {
	changes, err := w.changes(ctx)
	if len(changes) > 0 && !w.limit.TryAccept() {
		if err := w.limit.Wait(ctx); err != nil {
			return err
		}
		changes, err = w.changes(ctx) // by what is known after the wait
	}
	if len(changes) == 0 {
		return err
	}
	err = errors.Join(err, w.write(ctx, changes))
	select { // what comes meanwhile is in the next patch
	case <-w.config.Clock.After(patchGap):
	case <-ctx.Done():
	}
	return err
}

// changes asks the parts.
func (w *Writer) changes(ctx context.Context) (all []change, err error) {
	node := w.node()
	if node == nil {
		return nil, nil
	}
	var errs []error
	for _, p := range append(w.parts, part{"conditions", w.planConditions}) {
		patch, again, err := p.plan(ctx, node)
		errs = append(errs, err)
		if again > 0 {
			w.WakeAfter(again)
		}
		if !patch.IsZero() {
			all = append(all, change{p.name, patch})
		}
	}
	return all, errors.Join(errs...)
}

// node is the newest that is known, nil for none: its event will come.
func (w *Writer) node() *corev1.Node {
	cached, err := w.config.Nodes.Lister().Get(w.config.Node)
	if err != nil { // a cache knows no other error than NotFound
		return nil
	}
	node, _ := w.own.Get(w.config.Node, cached, true)
	return node
}

// write patches the node. What the API server refuses for one part's sake is written part by part.
func (w *Writer) write(ctx context.Context, changes []change) error {
	names, all := "", Patch{}
	for _, c := range changes {
		names, all = names+", "+c.part, all.with(c.patch)
	}
	err := w.patch(ctx, names[2:], all)
	if len(changes) == 1 || !refused(err) {
		return err
	}
	var errs []error
	for _, c := range changes {
		errs = append(errs, w.patch(ctx, c.part, c.patch))
	}
	return errors.Join(errs...)
}

// refused reports whether the API server understood a patch and does not take it.
func refused(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) ||
		apierrors.IsRequestEntityTooLargeError(err)
}

func (w *Writer) patch(ctx context.Context, parts string, p Patch) error {
	data, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("encode the patch of node %s (%s): %w", w.config.Node, parts, err)
	}
	// Strategic: conditions are merged by their type, and the kubelet's stay.
	node, err := w.config.Client.CoreV1().Nodes().Patch(ctx, w.config.Node, types.StrategicMergePatchType, data,
		metav1.PatchOptions{FieldManager: "kubecri"}, "status")
	if p.advertises() {
		w.config.Metrics.Patched(err)
	}
	if err != nil {
		return fmt.Errorf("patch the status of node %s (%s): %w", w.config.Node, parts, err)
	}
	w.own.Wrote(node)
	klog.FromContext(ctx).V(2).Info("Patched the node", "parts", parts, "patch", string(data))
	return nil
}
