package binding

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubeslot/kubeslot/types/assignment"
)

// Bind binds the pod, with all that was contributed to its cycle, in one write. It
// is the whole of a plugin's Bind: without a contribution the pod is left to the
// next bind plugin.
func Bind(ctx context.Context, handle fwk.Handle, state fwk.CycleState, pod *v1.Pod, node string) *fwk.Status {
	p := read(state)
	if p == nil {
		return fwk.NewStatus(fwk.Skip)
	}
	if p.node != node {
		return fwk.AsStatus(fmt.Errorf("bind pod %s to node %s: its devices were chosen on node %s", klog.KObj(pod), node, p.node))
	}
	binding := &v1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Annotations: p.annotations},
		Target:     v1.ObjectReference{Kind: "Node", Name: node},
	}
	for _, check := range p.checks {
		if err := check(); err != nil {
			return fwk.AsStatus(fmt.Errorf("pod %s is not bound to node %s: %w", klog.KObj(pod), node, err))
		}
	}
	if err := deliver(ctx, handle, binding); err != nil {
		return fwk.AsStatus(fmt.Errorf("bind pod %s to node %s: %w", klog.KObj(pod), node, err))
	}
	return nil
}

func send(ctx context.Context, handle fwk.Handle, binding *v1.Binding) error {
	if cacher := handle.APICacher(); cacher != nil {
		onFinish, err := cacher.BindPod(binding)
		if err != nil {
			return err
		}
		return cacher.WaitOnFinish(ctx, onFinish)
	}
	return handle.ClientSet().CoreV1().Pods(binding.Namespace).Bind(ctx, binding, metav1.CreateOptions{})
}

// deliver sends the Binding until it is certain whether the pod is bound by it. When
// the answer is lost, the request may still be on its way and be applied at any
// time: to give its devices to another pod then would double-book them. A second
// one settles it, since a pod is bound only once.
func deliver(ctx context.Context, handle fwk.Handle, binding *v1.Binding) error {
	err := send(ctx, handle, binding)
	if err == nil || refused(err) {
		return err
	}
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "pod", klog.KObj(binding), "node", binding.Target.Name)
	first, result := err, "unknown" // the scheduler ends: the next one reads it from the pod
	defer func() { lostBinds.WithLabelValues(result).Inc() }()
	backoff := wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 8, Cap: 5 * time.Second}
	for {
		if apierrors.IsConflict(err) {
			// It is bound, by this or by another, or is being deleted: for good, either way.
			var applied bool
			if applied, err = isApplied(ctx, handle, binding); err == nil {
				if !applied {
					result = "not-applied"
					return first
				}
				result = "applied"
				return nil
			}
		}
		logger.Error(err, "Cannot tell yet whether a bind was applied; its devices stay taken", "bindError", first)
		select {
		case <-time.After(backoff.Step()):
		case <-ctx.Done():
			return first
		}
		switch err = send(ctx, handle, binding); {
		case err == nil:
			result = "applied"
			return nil
		case refused(err):
			result = "not-applied"
			return err
		}
	}
}

// isApplied reports whether the pod is bound by the Binding.
func isApplied(ctx context.Context, handle fwk.Handle, binding *v1.Binding) (bool, error) {
	live, err := handle.ClientSet().CoreV1().Pods(binding.Namespace).Get(ctx, binding.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return live.UID == binding.UID && live.Spec.NodeName == binding.Target.Name &&
		live.Annotations[assignment.Annotation] == binding.Annotations[assignment.Annotation], nil
}

// refused reports whether the API server has said that it did not bind, and will
// not: the pod is gone, or may not be bound so.
func refused(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && !apierrors.IsTimeout(err) && !apierrors.IsServerTimeout(err) &&
		!apierrors.IsConflict(err) && !apierrors.IsInternalError(err) && !apierrors.IsServiceUnavailable(err) &&
		!apierrors.IsTooManyRequests(err)
}
