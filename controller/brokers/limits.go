package brokers

import (
	"cmp"
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubeslot/kubeslot/controller/limits"
	"github.com/kubeslot/kubeslot/controller/naming"
)

// count counts broker pods and Jobs, by Instance. Pods that have ended count until they are
// deleted, for their successors have their places. A Job's pods count with the Job, and by
// themselves when it is gone. reach returns the nodes that a Job's pods may be on.
func count(pods []corev1.Pod, jobs []batchv1.Job, reach func(instance string) []string) map[string]limits.Places {
	all := map[string]limits.Places{}
	add := func(o client.Object, node string, n int) {
		instance := o.GetLabels()[naming.Instance]
		if all[instance] == nil {
			all[instance] = limits.Places{}
		}
		all[instance][node] += n
	}
	there := map[types.UID]bool{}
	for i := range jobs {
		job := &jobs[i]
		there[job.UID] = true
		if n := jobPods(&job.Spec); ownerKind(job) == instanceKind && !isFinished(job) && n > 0 {
			add(job, limits.Among(reach(job.Labels[naming.Instance])), n)
		}
	}
	for i := range pods {
		pod := &pods[i]
		switch ownerKind(pod) {
		case jobKind:
			if there[metav1.GetControllerOf(pod).UID] || isEnded(pod) {
				continue
			}
		case instanceKind:
		default:
			continue
		}
		add(pod, cmp.Or(pod.Labels[naming.TargetNode], naming.Cut(pod.Spec.NodeName)), 1)
	}
	return all
}

func ownerKind(o client.Object) string {
	if owner := metav1.GetControllerOf(o); owner != nil {
		return owner.Kind
	}
	return ""
}

// reach returns the nodes that reach an Instance's device, as they count.
func (r *Reconciler) reach(instance string) []string { return cut(r.Inventory.Device(instance).Nodes) }

func cut(nodes []string) []string {
	all := make([]string, len(nodes))
	for i, node := range nodes {
		all[i] = naming.Cut(node)
	}
	return all
}

// existing returns what the cache shows of all brokers of a Configuration.
func (r *Reconciler) existing(configuration types.NamespacedName) (map[string]limits.Places, error) {
	return r.list(context.Background(), client.InNamespace(configuration.Namespace),
		client.MatchingFields{naming.Configuration: configuration.Name})
}

func (r *Reconciler) list(ctx context.Context, of ...client.ListOption) (map[string]limits.Places, error) {
	pods, jobs, err := r.listMade(ctx, append(of, client.UnsafeDisableDeepCopy)...)
	if err != nil {
		return nil, err
	}
	return count(pods.Items, jobs.Items, r.reach), nil
}

// listMade lists broker pods and Jobs, as the cache shows them.
func (r *Reconciler) listMade(
	ctx context.Context, of ...client.ListOption,
) (pods corev1.PodList, jobs batchv1.JobList, err error) {
	if err = r.Made.List(ctx, &pods, of...); err == nil {
		err = r.Made.List(ctx, &jobs, of...)
	}
	return pods, jobs, err
}

// decide says what to do about an Instance's brokers, within the limits of its
// Configuration.
func (r *Reconciler) decide(key types.NamespacedName, f *facts, jobs []*batchv1.Job) (p plan, j jobPlan, err error) {
	perNode, total := f.configuration.Spec.BrokersLimit()
	one := limits.Instance{Key: key, Configuration: naming.ConfigurationOf(key),
		Since: f.instance.CreationTimestamp.Time, Exists: f.exists}
	_, err = r.limits.Decide(one, limits.Limit{PerNode: perNode, Total: total}, func(room *limits.Room) {
		f.room = room
		p, j = decide(f), decideJobs(f, jobs)
	})
	return p, j, err
}

// leave notes that nothing more is made for an Instance. What there is of it counts until it
// is gone.
func (r *Reconciler) leave(ctx context.Context, key types.NamespacedName) error {
	of := client.MatchingFields{naming.Instance: key.Name}
	exists, err := r.list(ctx, client.InNamespace(key.Namespace), of)
	if err != nil {
		return fmt.Errorf("list the brokers of Instance %s: %w", key, err)
	}
	r.limits.Leave(limits.Instance{Key: key, Configuration: naming.ConfigurationOf(key), Exists: exists[key.Name]})
	return nil
}
