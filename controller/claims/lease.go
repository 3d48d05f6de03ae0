package claims

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubeslot/kubeslot/controller/watch"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// leaseInterval is at least between two reads of a node's Lease, however many claims ask for it, until
// the node was silent for as long as a claim promises.
const leaseInterval = 5 * time.Second

// renewal is a node's Lease as it was last read. Times are of this process's clock alone: the Lease
// says when it was renewed by a clock of the node, which may be wrong.
type renewal struct {
	version string    // of the Lease; "" when there is none
	changed time.Time // when this version was first seen
	read    time.Time
}

// silence returns for how long kubecri of the node has not renewed its Lease, as far as this process
// has seen; nil when there is no Lease. If it is promised or longer, the Lease was read by this call.
func (r *Reconciler) silence(ctx context.Context, node string, promised time.Duration) (*time.Duration, error) {
	r.mu.Lock()
	last, known := r.heard[node]
	r.mu.Unlock()
	now := r.Clock.Now()
	if !known || now.Sub(last.read) >= leaseInterval || now.Sub(last.changed) >= promised {
		lease, err := watch.Get(ctx, r.Live, types.NamespacedName{Namespace: corev1.NamespaceNodeLease,
			Name: v1alpha1.NodeLease(node)}, &coordinationv1.Lease{})
		if err != nil {
			return nil, fmt.Errorf("read the Lease of kubecri on node %s: %w", node, err)
		}
		version := ""
		if lease != nil {
			version = string(lease.UID) + "/" + lease.ResourceVersion
		}
		if !known || version != last.version {
			last.version, last.changed = version, now
		}
		last.read = now
		r.mu.Lock()
		r.heard[node] = last
		r.mu.Unlock()
	}
	if last.version == "" {
		return nil, nil
	}
	silent := now.Sub(last.changed)
	return &silent, nil
}

// forgetNode forgets when a node that is gone was heard of.
func (r *Reconciler) forgetNode(node string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.heard, node)
}

// deleteBroker deletes the claim's pod without waiting for its node, which has stopped it.
func (r *Reconciler) deleteBroker(ctx context.Context, claim *v1alpha1.SlotClaim) error {
	p := claim.Spec.Pod
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}}
	err := r.Client.Delete(ctx, pod, client.Preconditions{UID: &p.UID}, client.GracePeriodSeconds(0))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete broker %s/%s of node %s, which is not heard of: %w", p.Namespace, p.Name, claim.Spec.NodeName, err)
	}
	klog.FromContext(ctx).Info("Deleted a broker of a node that is not heard of", "pod", klog.KRef(p.Namespace, p.Name), "node", claim.Spec.NodeName)
	return nil
}
