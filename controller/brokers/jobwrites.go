package brokers

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubeslot/kubeslot/controller/naming"
	"github.com/kubeslot/kubeslot/controller/watch"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// wasMade reports whether the API server has the note that the Job was made, or the Instance no more. The cache may be
// behind, and the Job have ended and be gone.
func (r *Reconciler) wasMade(ctx context.Context, f *facts) (bool, error) {
	now := &metav1.PartialObjectMetadata{}
	now.SetGroupVersionKind(akriv0.SchemeGroupVersion.WithKind(instanceKind))
	now, err := watch.Get(ctx, r.Live, client.ObjectKeyFromObject(f.instance), now)
	if err != nil {
		return false, fmt.Errorf("read Instance %s/%s: %w", f.instance.Namespace, f.instance.Name, err)
	}
	return now == nil || now.UID != f.instance.UID || now.Annotations[naming.JobDone] == f.spec.hash, nil
}

// doJobs does what was planned for Jobs.
func (r *Reconciler) doJobs(ctx context.Context, f *facts, p *jobPlan, m *memory) (time.Duration, error) {
	if p.create != nil {
		if left := m.refusedFor(f.now); left > 0 {
			p.problem = &m.refusal
			return left, nil
		}
		if made, err := r.wasMade(ctx, f); err != nil || made {
			return cacheLag, err
		}
		wait, next, err := r.create(ctx, f, jobKind, p.create, m, &p.problem)
		if err != nil || !next {
			return wait, err
		}
	}
	if p.record != nil {
		if err := r.annotate(ctx, f, naming.JobDone, *p.record); err != nil {
			return 0, fmt.Errorf("note on Instance %s/%s that its Job was made: %w", f.instance.Namespace, f.instance.Name, err)
		}
	}
	if p.start != nil {
		if err := r.Client.Patch(ctx, released(p.start), client.MergeFrom(p.start)); client.IgnoreNotFound(err) != nil {
			return 0, fmt.Errorf("let Job %s/%s run: %w", p.start.Namespace, p.start.Name, err)
		}
	}
	for _, job := range p.remove {
		withPods := client.PropagationPolicy(metav1.DeletePropagationBackground)
		if err := r.remove(ctx, f, jobKind, job, "its Configuration has another spec", withPods); err != nil {
			return 0, err
		}
	}
	return 0, nil
}
