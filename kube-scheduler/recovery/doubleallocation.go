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
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/kube-scheduler/preemption"
)

const (
	// period is how often the ledger is asked, which keeps the slots that several pods hold: as
	// long as there are none, that takes less than a microsecond.
	period = time.Second
	// maxRetry bounds the time between two attempts to resolve one double allocation, and the rate
	// of log lines if they fail: it may be a webhook that denies the deletion.
	maxRetry = time.Minute
)

// Evictor deletes pods that were assigned a slot which another pod keeps: their containers
// cannot start, for kubecri refuses them the slot.
type Evictor struct {
	Logger   klog.Logger
	Client   kubernetes.Interface
	Recorder events.EventRecorder
	// DoubleAllocations returns those that there are now, and that this scheduler has to resolve.
	DoubleAllocations func() []*ledger.DoubleAllocation
}

// Run evicts the losers of double allocations until ctx ends. What cannot be resolved is tried
// again, later and later, for as long as there is a double allocation.
func (e *Evictor) Run(ctx context.Context) {
	retries := flowcontrol.NewBackOff(period, maxRetry)
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		for _, d := range e.DoubleAllocations() {
			key, now := d.Slot.String(), time.Now()
			if retries.IsInBackOffSinceUpdate(key, now) {
				continue
			}
			retries.Next(key, now)
			for _, loser := range d.Losers {
				logger := e.Logger.WithValues("pod", klog.KRef(loser.Namespace, loser.Name), "podUID", loser.UID,
					"slot", key, "winner", d.Winner.String())
				if err := e.evict(ctx, logger, d, loser); err != nil && ctx.Err() == nil {
					logger.Error(err, "Cannot evict a pod whose slot another pod keeps; it is tried again")
				}
			}
		}
		retries.GC()
	}, period)
}

// evict deletes the loser if, as the API says, both pods are there to stay: a scheduler that stood
// still for a while must not evict pods by what it knew before.
func (e *Evictor) evict(ctx context.Context, logger klog.Logger, d *ledger.DoubleAllocation, loser ledger.Pod) error {
	for _, pod := range []ledger.Pod{d.Winner, loser} {
		if stays, err := e.stays(ctx, pod); err != nil || !stays {
			return err
		}
	}
	if deleted, err := preemption.Delete(ctx, e.Client, loser); err != nil || !deleted {
		return err
	}
	logger.Info("Evicted a pod whose slot another pod keeps")
	pod := &v1.ObjectReference{APIVersion: "v1", Kind: "Pod",
		Namespace: loser.Namespace, Name: loser.Name, UID: types.UID(loser.UID)}
	e.Recorder.Eventf(pod, nil, v1.EventTypeWarning, "SlotAssignedTwice", "Evicting",
		"Slot %s was assigned to this pod and to pod %s, which keeps it; another scheduler was at work", d.Slot,
		d.Winner)
	return nil
}

func (e *Evictor) stays(ctx context.Context, p ledger.Pod) (bool, error) {
	pod, err := e.Client.CoreV1().Pods(p.Namespace).Get(ctx, p.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	ended := pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
	return string(pod.UID) == p.UID && pod.DeletionTimestamp == nil && !ended, nil
}
