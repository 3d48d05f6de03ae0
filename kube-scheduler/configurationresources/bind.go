package configurationresources

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubeslot/kubeslot/types/assignment"
)

// Bind binds a pod that got slots, with its assignment in the Binding's
// annotations: one write, so that a pod is never bound without it. Other pods
// are left to the next bind plugin.
func (p *Plugin) Bind(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node string) *fwk.Status {
	data, err := state.Read(stateKey)
	if err != nil {
		return fwk.NewStatus(fwk.Skip)
	}
	notes, err := annotations(pod, node, data.(*cycle).assignment)
	if err != nil {
		return fwk.AsStatus(fmt.Errorf("bind pod %s to node %s: %w", klog.KObj(pod), node, err))
	}
	binding := &v1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Annotations: notes},
		Target:     v1.ObjectReference{Kind: "Node", Name: node},
	}
	if err := p.send(ctx, binding); err != nil {
		if p.boundAnyway(ctx, binding, err) {
			return nil
		}
		return fwk.AsStatus(fmt.Errorf("bind pod %s to node %s: %w", klog.KObj(pod), node, err))
	}
	return nil
}

func (p *Plugin) send(ctx context.Context, binding *v1.Binding) error {
	if cacher := p.handle.APICacher(); cacher != nil {
		onFinish, err := cacher.BindPod(binding)
		if err != nil {
			return err
		}
		return cacher.WaitOnFinish(ctx, onFinish)
	}
	return p.handle.ClientSet().CoreV1().Pods(binding.Namespace).Bind(ctx, binding, metav1.CreateOptions{})
}

// boundAnyway asks the API whether a bind was applied although its answer was
// lost: giving its slots to another pod then would double-book them.
func (p *Plugin) boundAnyway(ctx context.Context, binding *v1.Binding, bindErr error) bool {
	if status := apierrors.APIStatus(nil); errors.As(bindErr, &status) && !apierrors.IsTimeout(bindErr) &&
		!apierrors.IsServerTimeout(bindErr) && !apierrors.IsConflict(bindErr) && !apierrors.IsInternalError(bindErr) {
		return false // the API server refused it
	}
	live, err := p.handle.ClientSet().CoreV1().Pods(binding.Namespace).Get(ctx, binding.Name, metav1.GetOptions{})
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot tell whether a bind was applied", "pod", klog.KObj(binding), "node", binding.Target.Name, "bindError", bindErr)
		lostBinds.WithLabelValues("unknown").Inc()
		return false
	}
	applied := live.UID == binding.UID && live.Spec.NodeName == binding.Target.Name &&
		live.Annotations[assignment.Annotation] == binding.Annotations[assignment.Annotation]
	if applied {
		lostBinds.WithLabelValues("applied").Inc()
	} else {
		lostBinds.WithLabelValues("not-applied").Inc()
	}
	return applied
}
