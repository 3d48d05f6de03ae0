package claims

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// createAttempts is how often a claim may be there for a create and gone when it
// is looked at.
const createAttempts = 5

// ErrContested is the error of a claim that was there for each create, and gone whenever it was read.
var ErrContested = errors.New("others create and delete it all the time")

// create creates a claim, which is to compare and swap: only one object can have the slot's name. wrote
// says that it did. When there is one already that is not the same, it returns that. One that is the same
// and that others may be deleting, as stands says, is replaced: their delete is of its UID. After an error
// the claim may be there: the watch will show it.
func (s *store) create(ctx context.Context, name slot.Name, spec v1alpha1.SlotClaimSpec, owner metav1.OwnerReference,
	stands func(slot.Name, *v1alpha1.SlotClaim) bool) (wrote bool, other *v1alpha1.SlotClaim, err error) {
	want := v1alpha1.NewSlotClaim(name, spec, owner)
	for range createAttempts {
		got, err := s.API.Create(ctx, want, metav1.CreateOptions{FieldManager: "kubecri"})
		if err == nil {
			s.own.Wrote(got)
			return true, nil, nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return false, nil, fmt.Errorf("create SlotClaim %s: %w", name, err)
		}
		there, err := s.API.Get(ctx, name.String(), metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err): // it went in between
		case err != nil:
			return false, nil, fmt.Errorf("look who has SlotClaim %s: %w", name, err)
		case same(there, spec) && !stands(name, there):
			if err := s.remove(ctx, name, there.UID); err != nil {
				return false, nil, fmt.Errorf("replace SlotClaim %s, which may be released: %w", name, err)
			}
		case same(there, spec): // an answer to a create was lost
			s.own.Wrote(there)
			return false, nil, nil
		default:
			if ours := s.get(name); ours != nil && ours.UID != there.UID {
				// The watch does not show yet that it is gone.
				s.own.Gone(name.String(), ours.UID)
			}
			return false, there, nil
		}
	}
	return false, nil, fmt.Errorf("create SlotClaim %s: %w", name, ErrContested)
}

// remove deletes the claim, and no later one of the name.
func (s *store) remove(ctx context.Context, name slot.Name, uid types.UID) error {
	err := s.API.Delete(ctx, name.String(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		if mayBeDone(err) {
			s.going.Store(uid, mayBeGone)
		}
		return fmt.Errorf("delete SlotClaim %s: %w", name, err)
	}
	s.own.Deleted(name.String(), uid)
	s.going.Delete(uid)
	return nil
}

// mayBeDone reports whether the API server may have done what it was asked, or do it yet, although the call
// has failed: no answer of its own says that it did not, and it was reached.
func mayBeDone(err error) bool {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return status.Status().Code >= http.StatusInternalServerError
	}
	op, ok := errors.AsType[*net.OpError](err)
	return !ok || op.Op != "dial"
}
