// Package allocator writes status.allocator of Configurations: who gives their devices, slots or DRA, and
// which Instances the other one has yet. The scheduler that leads runs it.
//
// What it writes follows from the Configuration's spec and the ledger alone, and the ledger gives no slots
// from the moment that the spec says DRA. So it may end at any point: the next leader goes on from there.
package allocator

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/client/clientset/versioned"
)

const (
	// period is the least time between two writes of one Configuration.
	period = time.Second
	// maxRetry bounds the time between two attempts to write one, and the rate of log lines if they fail.
	maxRetry = 30 * time.Second
	// callTimeout bounds one call of the API server.
	callTimeout = 5 * time.Second
	// fieldManager is who the API server says has written status.allocator.
	fieldManager = "kube-scheduler-allocator"
)

// Writer writes status.allocator.
type Writer struct {
	queue workqueue.TypedRateLimitingInterface[string] // names of Configurations
}

// New makes a Writer.
func New() *Writer {
	retries := workqueue.NewTypedItemExponentialFailureRateLimiter[string](period, maxRetry)
	return &Writer{workqueue.NewTypedRateLimitingQueue(retries)}
}

// Changed has the Configuration of the name looked at, soon: what changes within a period is one write. It
// does not block.
func (w *Writer) Changed(configuration string) { w.queue.AddAfter(configuration, period) }

// Handover returns the Configuration in force that has the name, nil for none, and the Instances that the
// allocator has yet which its spec does not name; false while that is not known, or not this process's to say.
type Handover func(configuration string) (c *akriv0.Configuration, held []string, known bool)

// Run writes until ctx ends.
func (w *Writer) Run(ctx context.Context, client versioned.Interface, handover Handover) {
	context.AfterFunc(ctx, w.queue.ShutDown)
	for {
		name, ended := w.queue.Get()
		if ended {
			return
		}
		c, held, known := handover(name)
		var err error
		switch {
		case !known:
			w.Changed(name) // until this scheduler leads
		case c != nil:
			err = write(ctx, client, c, held)
		}
		if err == nil {
			w.queue.Forget(name)
		} else {
			w.queue.AddRateLimited(name)
			if !apierrors.IsConflict(err) { // which somebody else's write is enough for
				klog.FromContext(ctx).Error(err, "Cannot write who gives a Configuration's devices; it is tried again")
			}
		}
		w.queue.Done(name)
	}
}

// write writes the status if it is another. The API server refuses the write if the Configuration has changed
// since: a scheduler that leads no longer must not decide by what it knew.
func write(ctx context.Context, client versioned.Interface, c *akriv0.Configuration, held []string) error {
	status := c.AllocatorStatusFor(held)
	if apiequality.Semantic.DeepEqual(status, c.Status.Allocator) {
		return nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": c.ResourceVersion},
		"status":   map[string]any{"allocator": fields(status)},
	})
	if err != nil {
		return fmt.Errorf("encode the patch: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err = client.AkriV0().Configurations(c.Namespace).Patch(ctx, c.Name, types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: fieldManager}, "status")
	if err != nil {
		return fmt.Errorf("patch the status of Configuration %s/%s: %w", c.Namespace, c.Name, err)
	}
	klog.FromContext(ctx).V(2).Info("Wrote who gives a Configuration's devices", "configuration", klog.KObj(c),
		"dra", c.Spec.IsDRA(), "instancesHeld", len(held))
	return nil
}

// fields has each field, for a merge patch keeps those that it does not name; nil removes one.
func fields(status *akriv0.AllocatorStatus) any {
	if status == nil {
		return nil
	}
	all := map[string]any{"current": status.Current, "held": nil, "heldCount": nil}
	if status.HeldCount > 0 {
		all["held"], all["heldCount"] = status.Held, status.HeldCount
	}
	return all
}
