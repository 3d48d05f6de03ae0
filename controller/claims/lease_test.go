package claims

import (
	"fmt"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubeslot/kubeslot/controller/naming"
)

// A node that is not heard of for as long as it has promised has stopped the container. Its clock
// does not matter, and each renewal of its Lease begins the time anew, as does a controller that starts.
func TestUnreachable(t *testing.T) {
	for _, ahead := range []time.Duration{0, time.Hour, -time.Hour} {
		t.Run(fmt.Sprintf("node's clock %s ahead", ahead), func(t *testing.T) { testUnreachable(t, ahead) })
	}
}

func testUnreachable(t *testing.T, ahead time.Duration) {
	lease := func(version string) *coordinationv1.Lease {
		renewed := metav1.NewMicroTime(newRig(t).clock.Now().Add(ahead))
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-node-lease", Name: "kubecri.node-a", Labels: map[string]string{"renewed": version}},
			Spec: coordinationv1.LeaseSpec{RenewTime: &renewed}}
	}
	promised := claimBy("u1", "n1")
	promised.Spec.ReleaseUnreachableAfter = &metav1.Duration{Duration: time.Minute}
	newRig := func(t *testing.T) *rig {
		r := newRig(t)
		r.see()
		r.add(nodeOf("n1", corev1.ConditionUnknown), promised)
		return r
	}
	pass := func(r *rig, d time.Duration) { r.clock.SetTime(r.clock.Now().Add(d)) }

	r := newRig(t)
	r.keeps(0) // no Lease: the node has promised nothing
	pass(r, time.Hour)
	r.keeps(0)
	r.add(lease("1"))
	pass(r, leaseInterval)
	r.keeps(time.Minute)
	pass(r, 50*time.Second)
	r.keeps(10 * time.Second)
	r.updateOf(lease("2"))
	pass(r, 5*time.Second)
	r.keeps(time.Minute)
	r.restart()
	pass(r, 59*time.Second)
	r.keeps(time.Minute)
	pass(r, time.Minute)
	r.deletesFor("Unreachable")

	r = newRig(t)
	r.add(lease("1"))
	r.keeps(time.Minute)
	reads := r.reads
	r.keeps(time.Minute)
	if got := r.reads - reads; got != 2 { // node and pod
		t.Errorf("%d reads for a second look within %v, want no other of the Lease", got, leaseInterval)
	}

	r.remove(nodeOf("n1", corev1.ConditionUnknown), r.cached, r.api)
	if r.deletesFor("NodeGone"); len(r.heard) != 0 {
		t.Errorf("nodes that are gone are remembered: %v", r.heard)
	}

	t.Run("a broker", func(t *testing.T) {
		r := newRig(t)
		broker := podOn(t, "u1", "node-a", claimed)
		broker.Labels = map[string]string{naming.Controller: naming.ControllerName}
		broker.OwnerReferences = []metav1.OwnerReference{{APIVersion: "akri.sh/v0", Kind: "Instance", Name: "cam-8120fe", UID: "i", Controller: ptr.To(true)}}
		r.add(broker, lease("1"))
		r.keeps(time.Minute)
		pass(r, time.Minute)
		r.deletesFor("Unreachable")
		if err := r.api.Get(t.Context(), client.ObjectKeyFromObject(broker), &corev1.Pod{}); !apierrors.IsNotFound(err) {
			t.Errorf("the broker: %v, want it gone", err)
		}
	})
}

// updateOf gives the API server another version of the Lease.
func (r *rig) updateOf(lease *coordinationv1.Lease) {
	r.Helper()
	there := &coordinationv1.Lease{}
	if err := r.api.Get(r.Context(), client.ObjectKeyFromObject(lease), there); err != nil {
		r.Fatal(err)
	}
	lease.ResourceVersion = there.ResourceVersion
	if err := r.api.Update(r.Context(), lease); err != nil {
		r.Fatal(err)
	}
}
