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
	if err := send(ctx, handle, binding); err != nil && !boundAnyway(ctx, handle, binding, err) {
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

// boundAnyway asks the API, until it answers, whether a bind was applied although
// its own answer was lost: to give its devices to another pod then would
// double-book them.
func boundAnyway(ctx context.Context, handle fwk.Handle, binding *v1.Binding, bindErr error) bool {
	if refused(bindErr) {
		return false
	}
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "pod", klog.KObj(binding), "node", binding.Target.Name)
	result := "unknown" // the scheduler ends: the next one reads it from the pod
	defer func() { lostBinds.WithLabelValues(result).Inc() }()
	backoff := wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 8, Cap: 5 * time.Second}
	for {
		live, err := handle.ClientSet().CoreV1().Pods(binding.Namespace).Get(ctx, binding.Name, metav1.GetOptions{})
		switch {
		case err == nil && live.UID == binding.UID && live.Spec.NodeName == binding.Target.Name &&
			live.Annotations[assignment.Annotation] == binding.Annotations[assignment.Annotation]:
			result = "applied"
			return true
		case err == nil || apierrors.IsNotFound(err):
			result = "not-applied"
			return false
		}
		logger.Error(err, "Cannot tell yet whether a bind was applied; its devices stay taken", "bindError", bindErr)
		select {
		case <-time.After(backoff.Step()):
		case <-ctx.Done():
			return false
		}
	}
}

// refused reports whether the API server has said that it did not bind.
func refused(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && !apierrors.IsTimeout(err) && !apierrors.IsServerTimeout(err) &&
		!apierrors.IsConflict(err) && !apierrors.IsInternalError(err) && !apierrors.IsServiceUnavailable(err) &&
		!apierrors.IsTooManyRequests(err)
}
