package command

import (
	"errors"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// deleteClaim does what the API server does with the claim, and then what its node does that has
// the container still.
func (s *story) deleteClaim(tracker clienttesting.ObjectTracker, a clienttesting.DeleteActionImpl, as string) error {
	resource := a.GetResource().GroupResource()
	claim, there := s.objects["claim/"+a.Name].(*v1alpha1.SlotClaim)
	switch uid := a.DeleteOptions.Preconditions; {
	case as == "deleter":
		err := apierrors.NewForbidden(resource, a.Name, errors.New("ValidatingAdmissionPolicy 'kubeslot-release' with binding 'kubeslot-release' denied request: "+
			`whoever has the verb "release" on slotclaims.kubeslot.io (ClusterRole kubeslot:release) may do so`))
		err.ErrStatus.Reason, err.ErrStatus.Code = metav1.StatusReasonInvalid, 422
		return err
	case !there:
		return apierrors.NewNotFound(resource, a.Name)
	case uid == nil || uid.UID == nil || *uid.UID != claim.UID:
		return apierrors.NewConflict(resource, a.Name, fmt.Errorf("the UID is %s", claim.UID))
	}
	if err := tracker.Delete(a.GetResource(), "", a.Name); err != nil {
		return err
	}
	delete(s.objects, "claim/"+a.Name)
	if !s.runs[a.Name] {
		return nil
	}
	again := claim.DeepCopy()
	again.UID, again.Spec.MadeAgain = claim.UID+"-again", true
	s.set("claim/"+again.Name, again)
	return tracker.Create(a.GetResource(), again.DeepCopy(), "")
}

// lease is that of kubecri on the node.
func (s *story) lease(node string) {
	renewed := metav1.NewMicroTime(long.Time)
	s.set("lease/"+node, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: v1alpha1.NodeLease(node)},
		Spec: coordinationv1.LeaseSpec{RenewTime: &renewed}})
}
