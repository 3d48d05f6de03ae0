package brokers

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubeslot/kubeslot/controller/naming"
)

// note has the Instance say the failures that successors count, before they are made.
func (r *Reconciler) note(ctx context.Context, f *facts, due map[string]int) error {
	if len(due) == 0 {
		return nil
	}
	if err := r.annotate(ctx, f, naming.Failures, f.notedNow(due)); err != nil {
		return fmt.Errorf("note on Instance %s/%s how often its brokers failed: %w", f.instance.Namespace, f.instance.Name, err)
	}
	return nil
}

// annotate writes an annotation of the Instance; "" takes it away.
func (r *Reconciler) annotate(ctx context.Context, f *facts, key, value string) error {
	if f.instance.Annotations[key] == value {
		return nil
	}
	want := f.instance.DeepCopy()
	metav1.SetMetaDataAnnotation(&want.ObjectMeta, key, value)
	if value == "" {
		delete(want.Annotations, key)
	}
	err := r.Client.Patch(ctx, want, client.MergeFrom(f.instance))
	if err == nil {
		f.instance = want // which another note in the same round starts from
	}
	return client.IgnoreNotFound(err)
}

// remove deletes a Pod or a Job, if it is still there.
func (r *Reconciler) remove(
	ctx context.Context, f *facts, kind string, object client.Object, why string, options ...client.DeleteOption,
) error {
	uid := object.GetUID()
	err := r.Client.Delete(ctx, object, append(options, client.Preconditions{UID: &uid})...)
	if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete %s %s/%s, because %s: %w", kind, object.GetNamespace(), object.GetName(), why, err)
	}
	if err == nil {
		removed.WithLabelValues(kind).Inc()
		klog.FromContext(ctx).V(2).Info("Deleted a broker", "instance", klog.KObj(f.instance), "kind", kind,
			"name", object.GetName(), "reason", why)
	}
	return nil
}

// replace removes the Ready brokers that are not current and have their turn. The others are looked
// at again when they have theirs.
func (r *Reconciler) replace(ctx context.Context, f *facts, p *plan) error {
	if f.spec == nil || f.spec.pod == nil {
		r.rollout.leave(client.ObjectKeyFromObject(f.instance))
		return nil
	}
	all := func() (map[string][]step, error) {
		return r.stepsOfAll(ctx, client.ObjectKeyFromObject(f.configuration), f.spec.hash)
	}
	turns, err := r.rollout.report(f.configuration, f.spec.hash, f.instance.Name, p.steps, all)
	if err != nil {
		return err
	}
	for _, removal := range p.replace {
		if !slices.Contains(turns, naming.Cut(removal.node)) {
			continue
		}
		if removal.failures > 0 {
			p.isDue(removal.node, removal.pod, removal.failures)
			if err := r.note(ctx, f, p.due); err != nil {
				return err
			}
		}
		if err := r.remove(ctx, f, podKind, removal.pod, removal.why); err != nil {
			return err
		}
	}
	return nil
}

// adopt gives a pod of Akri's our annotations.
func (r *Reconciler) adopt(ctx context.Context, pod *corev1.Pod) error {
	before := pod.DeepCopy()
	delete(before.Annotations, naming.SpecHash)
	delete(before.Annotations, naming.PropertiesHash)
	if err := r.Client.Patch(ctx, pod, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("adopt broker pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}
