package recovery

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/kube-scheduler/preemption"
)

// Evictor deletes pods that were assigned a slot which another pod keeps: their containers
// cannot start, for kubecri refuses them the slot.
type Evictor struct {
	Logger   klog.Logger
	Client   kubernetes.Interface
	Recorder events.EventRecorder
}

// Evict deletes the losers. It gives up with ctx, or after eight attempts at one of them.
func (e *Evictor) Evict(ctx context.Context, allocations []*ledger.DoubleAllocation) {
	for _, c := range allocations {
		for _, loser := range c.Losers {
			e.evict(ctx, c, loser)
		}
	}
}

func (e *Evictor) evict(ctx context.Context, c *ledger.DoubleAllocation, loser ledger.Pod) {
	logger := e.Logger.WithValues("pod", klog.KRef(loser.Namespace, loser.Name), "podUID", loser.UID,
		"slot", c.Slot.String(), "winner", c.Winner.String())
	backoff := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 8}
	var failure error
	_ = wait.ExponentialBackoffWithContext(ctx, backoff, func(ctx context.Context) (done bool, _ error) {
		if failure = e.try(ctx, logger, c, loser); failure != nil {
			logger.Error(failure, "Cannot evict a pod whose slot another pod keeps")
		}
		return failure == nil, nil
	})
	if failure != nil && ctx.Err() == nil {
		logger.Error(failure, "Gave up evicting a pod whose slot another pod keeps; delete it by hand")
	}
}

func (e *Evictor) try(ctx context.Context, logger klog.Logger, c *ledger.DoubleAllocation, loser ledger.Pod) error {
	stays, err := e.stays(ctx, c.Winner)
	if err != nil {
		return err
	}
	if !stays {
		logger.Info("The winner of a double allocation is going; the other pod stays")
		return nil
	}
	deleted, err := preemption.Delete(ctx, e.Client, loser)
	if deleted {
		logger.Info("Evicted a pod whose slot another pod keeps")
		pod := &v1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: loser.Namespace, Name: loser.Name, UID: types.UID(loser.UID)}
		e.Recorder.Eventf(pod, nil, v1.EventTypeWarning, "SlotAssignedTwice", "Evicting",
			"Slot %s was assigned to this pod and to pod %s, which keeps it; another scheduler was at work", c.Slot, c.Winner)
	}
	return err
}

// stays asks the API whether the winner is there to stay: a scheduler that
// stood still for a while must not evict others by what it knew before.
func (e *Evictor) stays(ctx context.Context, winner ledger.Pod) (bool, error) {
	pod, err := e.Client.CoreV1().Pods(winner.Namespace).Get(ctx, winner.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	ended := pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
	return string(pod.UID) == winner.UID && pod.DeletionTimestamp == nil && !ended, nil
}
