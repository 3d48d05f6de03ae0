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
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/client/clientset/versioned"
)

const (
	// period is the time between two looks, and so the least between two writes of one Configuration.
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
	Client versioned.Interface
	// Handovers returns those that this scheduler has to write.
	Handovers func() []ledger.Handover
}

// Run writes until ctx ends. What cannot be written is tried again, later and later.
func (w *Writer) Run(ctx context.Context) {
	retries := flowcontrol.NewBackOff(period, maxRetry)
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		for _, h := range w.Handovers() {
			name, now := h.Configuration.Name, time.Now()
			if retries.IsInBackOffSinceUpdate(name, now) {
				continue
			}
			err := write(ctx, w.Client, h.Configuration, h.Held)
			if err == nil {
				retries.DeleteEntry(name)
				continue
			}
			retries.Next(name, now)
			if !apierrors.IsConflict(err) && ctx.Err() == nil { // somebody else's write is enough for a conflict
				klog.FromContext(ctx).Error(err, "Cannot write who gives a Configuration's devices; it is tried again")
			}
		}
		retries.GC()
	}, period)
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
