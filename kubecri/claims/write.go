package claims

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"

	typed "github.com/kubeslot/kubeslot/types/client/clientset/versioned/typed/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// createAttempts is how often a claim may be there for a create and gone when it
// is looked at.
const createAttempts = 5

// ErrContested is the error of a claim that was there for each create, and gone whenever it was read.
var ErrContested = errors.New("others create and delete it all the time")

// Writer creates and deletes SlotClaims of one node. To create is to compare and swap: only one object
// can have the slot's name. Its functions are called with what the API server has, or has no more.
type Writer struct {
	API     typed.SlotClaimInterface
	Wrote   func(slot.Name, *v1alpha1.SlotClaim)
	Deleted func(slot.Name, types.UID)
}

// Create creates a claim; wrote says that it did. When there is one already that is
// not the same, it returns that. One that is the same and that others may be deleting, as
// stands says, is replaced: their delete is of its UID. After an error the claim may be
// there: the watch will show it.
func (w Writer) Create(ctx context.Context, name slot.Name, spec v1alpha1.SlotClaimSpec, owner metav1.OwnerReference,
	stands func(slot.Name, *v1alpha1.SlotClaim) bool) (wrote bool, other *v1alpha1.SlotClaim, err error) {
	want := v1alpha1.NewSlotClaim(name, spec, owner)
	for range createAttempts {
		got, err := w.API.Create(ctx, want, metav1.CreateOptions{FieldManager: "kubecri"})
		if err == nil {
			w.Wrote(name, got)
			return true, nil, nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return false, nil, fmt.Errorf("create SlotClaim %s: %w", name, err)
		}
		there, err := w.API.Get(ctx, name.String(), metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err): // it went in between
		case err != nil:
			return false, nil, fmt.Errorf("look who has SlotClaim %s: %w", name, err)
		case same(there, spec) && !stands(name, there):
			if err := w.Remove(ctx, name, there.UID); err != nil {
				return false, nil, fmt.Errorf("replace SlotClaim %s, which may be released: %w", name, err)
			}
		case same(there, spec): // an answer to a create was lost
			w.Wrote(name, there)
			return false, nil, nil
		default:
			return false, there, nil
		}
	}
	return false, nil, fmt.Errorf("create SlotClaim %s: %w", name, ErrContested)
}

// Remove deletes the claim, and no later one of the name.
func (w Writer) Remove(ctx context.Context, name slot.Name, uid types.UID) error {
	err := w.API.Delete(ctx, name.String(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete SlotClaim %s: %w", name, err)
	}
	w.Deleted(name, uid)
	return nil
}

// NodeOwner is the Node object, which owns the claims.
func NodeOwner(nodes corelisters.NodeLister, name string) (metav1.OwnerReference, error) {
	node, err := nodes.Get(name)
	if err != nil {
		return metav1.OwnerReference{}, fmt.Errorf("slots cannot be claimed while the API server has no Node object "+
			"of this node, or has not shown it: %w", err)
	}
	return v1alpha1.NodeOwner(node.Name, node.UID), nil
}
