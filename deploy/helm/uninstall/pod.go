package uninstall

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
)

// runPod runs the pod on the node, once, and deletes it when it has ended. The error says
// what the pod said, or what kept it from running.
func (u *uninstall) runPod(ctx context.Context, node string) error {
	pods := u.Kube.CoreV1().Pods(u.Namespace)
	pod := u.Pod.DeepCopy()
	pod.Name, pod.Namespace, pod.Spec.NodeName = podName(node), u.Namespace, node
	now := int64(0)
	remove := func(ctx context.Context) error {
		err := pods.Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &now})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete pod %s/%s: %w", u.Namespace, pod.Name, err)
		}
		return nil
	}
	err := u.try(ctx, func(ctx context.Context) error {
		_, err := pods.Create(ctx, pod, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) { // one of an uninstallation that was interrupted makes place
			return cmp.Or(remove(ctx), err)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("run pod %s/%s: %w", u.Namespace, pod.Name, err)
	}
	state := "has not started"
	err = wait.PollUntilContextCancel(ctx, u.Interval, true, func(ctx context.Context) (bool, error) {
		p, err := pods.Get(ctx, pod.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false, err
		}
		if err != nil { // the API server is away; the pod goes on
			state = err.Error()
			return false, nil
		}
		state = stateOf(p)
		if p.Status.Phase == corev1.PodFailed {
			return false, errors.New(state)
		}
		return p.Status.Phase == corev1.PodSucceeded, nil
	})
	if ctx.Err() != nil {
		err = fmt.Errorf("the time is over: %s", state)
	}
	if err != nil {
		err = fmt.Errorf("pod %s/%s: %w", u.Namespace, pod.Name, err)
	} else {
		u.say("node %s: %s", node, state)
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWords)
	defer cancel()
	return errors.Join(err, u.try(end, remove))
}

// try does it until it succeeds or is refused, or ctx ends: an API server may be away for a while.
func (u *uninstall) try(ctx context.Context, do func(context.Context) error) (failed error) {
	err := wait.PollUntilContextCancel(ctx, u.Interval, true, func(ctx context.Context) (bool, error) {
		failed = do(ctx)
		refused := apierrors.IsForbidden(failed) || apierrors.IsInvalid(failed)
		return failed == nil || refused, nil
	})
	return cmp.Or(failed, err)
}

// stateOf says what a person would look for in the pod's status.
func stateOf(p *corev1.Pod) string {
	for _, c := range p.Status.ContainerStatuses {
		switch {
		case c.State.Terminated != nil:
			message := strings.TrimSpace(c.State.Terminated.Message)
			if message == "" && c.State.Terminated.ExitCode == 0 {
				return "is clean" // its log says what was removed
			}
			if message == "" {
				message = fmt.Sprintf("%s, exit code %d", c.State.Terminated.Reason, c.State.Terminated.ExitCode)
			}
			return message
		case c.State.Waiting != nil:
			return strings.TrimSuffix(fmt.Sprintf("its container waits: %s: %s", c.State.Waiting.Reason, c.State.Waiting.Message), ": ")
		case c.State.Running != nil:
			return "it runs"
		}
	}
	if p.Status.Message != "" || p.Status.Reason != "" {
		return strings.Trim(p.Status.Reason+": "+p.Status.Message, ": ")
	}
	return "it has not started"
}

// podName is of a node's pod: a name of at most 253 characters that no other node has.
func podName(node string) string {
	const prefix, most = "kubeslot-uninstall-", 253
	if len(prefix)+len(node) <= most {
		return prefix + node
	}
	hash := fmt.Sprintf("-%x", sha256.Sum256([]byte(node)))[:11]
	return prefix + strings.TrimRight(node[:most-len(prefix)-len(hash)], ".-") + hash
}
