package binding

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/clock"

	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/assignment/signing"
)

// Binder binds the pods of one profile. Safe for concurrent use.
type Binder struct {
	Handle fwk.Handle
	Signer *signing.Signer // nil: assignments are not signed
	Clock  clock.Clock
	// NRIPlugin returns the NRI plugin that gives containers on the node their devices; "" for
	// none. nil is for none on any node.
	NRIPlugin func(node string) string
}

// Bind binds the pod, with all that was contributed to its cycle, in one write. It is the whole
// of a plugin's Bind. A pod without an assignment is left to the next bind plugin.
func (b *Binder) Bind(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node string) *fwk.Status {
	p := read(state)
	if p == nil {
		return fwk.NewStatus(fwk.Skip)
	}
	if chosen := p.info.NodeName; chosen != node {
		return fwk.AsStatus(fmt.Errorf("bind pod %s to node %s: its devices were chosen on node %s", klog.KObj(pod), node, chosen))
	}
	if p.step != nil {
		if status := p.step.Do(ctx); status.IsRejected() {
			return status
		} else if !status.IsSuccess() {
			return fwk.AsStatus(fmt.Errorf("pod %s is not bound to node %s: %w", klog.KObj(pod),
				node, status.AsError()))
		}
	}
	if p.annotations == nil {
		return fwk.NewStatus(fwk.Skip)
	}
	annotations := maps.Clone(p.annotations)
	b.Signer.Sign(annotations, string(pod.UID), node)
	result, err := b.deliver(ctx, &v1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Annotations: annotations},
		Target:     v1.ObjectReference{Kind: "Node", Name: node},
	})
	switch {
	case result == applied:
		p.tell(ctx, pod)
		return nil
	case result == notApplied && p.step != nil: // else what the step did may be of use, and the node knows
		p.step.Undo(ctx)
	}
	return fwk.AsStatus(fmt.Errorf("bind pod %s to node %s: %w", klog.KObj(pod), node, err))
}

func (b *Binder) send(ctx context.Context, binding *v1.Binding) error {
	if cacher := b.Handle.APICacher(); cacher != nil {
		onFinish, err := cacher.BindPod(binding)
		if err != nil {
			return err
		}
		return cacher.WaitOnFinish(ctx, onFinish)
	}
	return b.Handle.ClientSet().CoreV1().Pods(binding.Namespace).Bind(ctx, binding, metav1.CreateOptions{})
}

// What became of a bind.
const (
	applied    = "applied"
	notApplied = "not-applied"
	byAnother  = "by-another" // the pod is on the node, with another assignment
	unknown    = "unknown"    // the scheduler ends: the next one reads it from the pod
)

// deliver sends the Binding until it is certain whether the pod is bound by it. When
// the answer is lost, the request may still be on its way and be applied at any
// time: to give its devices to another pod then would allocate them twice. A second
// one settles it, since a pod is bound only once.
func (b *Binder) deliver(ctx context.Context, binding *v1.Binding) (result string, err error) {
	err = b.send(ctx, binding)
	if err == nil {
		return applied, nil
	}
	// The API cacher sends a Binding again by itself: the second try may be refused since the first was applied.
	if refused(err) && b.Handle.APICacher() == nil {
		return notApplied, err
	}
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "pod", klog.KObj(binding), "node", binding.Target.Name)
	defer func() { lostBinds.WithLabelValues(result).Inc() }()
	first := err
	backoff := wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 8, Cap: 5 * time.Second}
	for {
		if apierrors.IsConflict(err) || refused(err) {
			// It is bound, by this or by another, is being deleted, or may not be bound:
			// for good, whichever it is. A refusal alone does not tell, since admission
			// comes before a look at the pod.
			answer := err
			if result, err = b.resultOf(ctx, binding); err == nil {
				return result, errors.Join(first, answer)
			}
		}
		logger.Error(err, "Cannot tell yet whether a bind was applied; its devices stay taken", "bindError", first)
		select {
		case <-b.Clock.After(backoff.Step()):
		case <-ctx.Done():
			return unknown, first
		}
		if err = b.send(ctx, binding); err == nil {
			return applied, nil
		}
	}
}

// resultOf reads from the pod what became of the Binding.
func (b *Binder) resultOf(ctx context.Context, binding *v1.Binding) (string, error) {
	live, err := b.Handle.ClientSet().CoreV1().Pods(binding.Namespace).Get(ctx, binding.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return notApplied, nil
	case err != nil:
		return unknown, err
	case live.UID != binding.UID || live.Spec.NodeName != binding.Target.Name:
		return notApplied, nil
	case live.Annotations[assignment.Annotation] != binding.Annotations[assignment.Annotation]:
		return byAnother, nil
	}
	return applied, nil
}

// refused reports whether the API server has said that it did not bind, and will
// not: the pod is gone, or may not be bound so.
func refused(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && !apierrors.IsTimeout(err) && !apierrors.IsServerTimeout(err) &&
		!apierrors.IsConflict(err) && !apierrors.IsInternalError(err) && !apierrors.IsServiceUnavailable(err) &&
		!apierrors.IsTooManyRequests(err)
}
