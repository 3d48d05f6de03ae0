package preemption

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	apipod "k8s.io/kubernetes/pkg/api/v1/pod"
	schedutil "k8s.io/kubernetes/pkg/scheduler/util"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/kube-scheduler/slotcache"
	"github.com/kubeslot/kubeslot/kube-scheduler/slotrequest"
)

// victim is the pod; it is not found either where another has its name by now.
func (e *Evaluator) victim(v ledger.Victim) (*v1.Pod, error) {
	pod, err := e.Pods.Pods(v.Namespace).Get(v.Name)
	if err == nil && string(pod.UID) != v.UID {
		err = apierrors.NewNotFound(v1.Resource("pods"), v.Name)
	}
	return pod, err
}

// Evict makes the victims give up their slots, several at once as upstream's preemption.Executor does. If one cannot
// be evicted, those that have not been yet stay, the slots are reserved no longer, and the preemptor gets an Event
// and is tried again.
func (e *Evaluator) Evict(ctx context.Context, preemptor *v1.Pod, chosen *ledger.Preemption,
	nomination *slotcache.Nomination) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	e.Handle.Parallelizer().Until(ctx, len(chosen.Victims), func(i int) {
		v := chosen.Victims[i]
		pod, err := e.victim(v)
		if err == nil {
			err = e.evictOne(ctx, preemptor, pod, chosen.Node)
		}
		if err != nil && !apierrors.IsNotFound(err) {
			stop(fmt.Errorf("evict pod %s: %w", v.Pod, err)) // the first counts
		}
	}, e.PluginName)
	if err := context.Cause(ctx); err != nil {
		klog.FromContext(ctx).Error(err, "Preemption for slots failed", "pod", klog.KObj(preemptor), "node",
			chosen.Node)
		e.Handle.EventRecorder().Eventf(preemptor, nil, v1.EventTypeWarning, "PreemptionFailed", "Preempting",
			"The pods whose slots it is to have could not all be evicted, and it is tried again: %.200s", err)
		e.Cache.InVain(preemptor, nomination)
	}
}

// evictOne does as upstream's preemption.Executor: it cancels a pod that is not bound yet, and deletes others.
func (e *Evaluator) evictOne(ctx context.Context, preemptor, victim *v1.Pod, node string) error {
	note := "Preempted by pod %s on node %s, which needs its device slots"
	waiting, binding := e.Handle.GetWaitingPod(victim.UID), e.Handle.GetPodInPreBind(victim.UID)
	if waiting != nil && waiting.Preempt(e.PluginName, "preempted") ||
		binding != nil && binding.CancelPod("preempted by "+e.PluginName) {
		note += " (in kube-scheduler memory)" // it was not bound yet
	} else if deleted, err := e.delete(ctx, preemptor, victim); err != nil || !deleted {
		return err
	}
	e.Handle.EventRecorder().Eventf(victim, preemptor, v1.EventTypeNormal, "Preempted", "Preempting",
		note, klog.KObj(preemptor), node)
	return nil
}

// delete deletes the victim and says in its status why. It reports whether the pod was still there.
func (e *Evaluator) delete(ctx context.Context, preemptor, victim *v1.Pod) (bool, error) {
	status := victim.Status.DeepCopy()
	if apipod.UpdatePodCondition(status, &v1.PodCondition{
		Type:               v1.DisruptionTarget,
		ObservedGeneration: apipod.CalculatePodConditionObservedGeneration(status, victim.Generation, v1.DisruptionTarget),
		Status:             v1.ConditionTrue,
		Reason:             v1.PodReasonPreemptionByScheduler,
		Message:            fmt.Sprintf("%s: preempting to accommodate a higher priority pod that needs its device slots", preemptor.Spec.SchedulerName),
	}) {
		if err := schedutil.PatchPodStatus(ctx, e.Handle.ClientSet(), victim.Name, victim.Namespace, &victim.Status, status); err != nil && !apierrors.IsNotFound(err) {
			return false, fmt.Errorf("patch its status: %w", err)
		}
	}
	return Delete(ctx, e.Handle.ClientSet(), slotrequest.PodOf(victim))
}

// Delete deletes this pod, and not another that has its name by now. It reports
// whether the pod was still there.
func Delete(ctx context.Context, client kubernetes.Interface, pod ledger.Pod) (bool, error) {
	err := client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, *metav1.NewPreconditionDeleteOptions(pod.UID))
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return false, nil
	}
	return err == nil, err
}
