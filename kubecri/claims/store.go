package claims

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/kubeslot/kubeslot/kubecri/ownwrites"
	clientset "github.com/kubeslot/kubeslot/types/client/clientset/versioned"
	typed "github.com/kubeslot/kubeslot/types/client/clientset/versioned/typed/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

const (
	// createAttempts is how often a claim may be there for a create and gone when it
	// is looked at.
	createAttempts = 5
)

// errContested: the claim was there for each create, and gone whenever it was read.
var errContested = errors.New("others create and delete it all the time")

// store reads and writes this node's claims. It sees its own writes before the
// informer does: a claim that was just deleted must not look held, and one that was
// just created is not created again.
type store struct {
	node   string
	client clientset.Interface
	cached cache.Store
	own    *ownwrites.Writes[*v1alpha1.SlotClaim]

	mu sync.Mutex
	// writing are the slots that somebody is at: one at a time.
	writing map[slot.Name]chan struct{}
}

func newStore(node string, client clientset.Interface, cached cache.Store, clock clock.PassiveClock) *store {
	return &store{node: node, client: client, cached: cached, own: ownwrites.New[*v1alpha1.SlotClaim](clock), writing: map[slot.Name]chan struct{}{}}
}

// lock makes the caller the only one in this process who is at the slot's claim.
func (s *store) lock(ctx context.Context, name slot.Name) (unlock func(), err error) {
	for {
		s.mu.Lock()
		other, taken := s.writing[name]
		if !taken {
			done := make(chan struct{})
			s.writing[name] = done
			s.mu.Unlock()
			return func() {
				s.mu.Lock()
				defer s.mu.Unlock()
				delete(s.writing, name)
				close(done)
			}, nil
		}
		s.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for another change to the claim of slot %s: %w", name, ctx.Err())
		}
	}
}

// get returns this node's claim of the slot, nil for none. It is not to be changed.
func (s *store) get(name slot.Name) *v1alpha1.SlotClaim {
	shown := s.shown(name)
	claim, _ := s.own.Get(name.String(), shown, shown != nil)
	return claim
}

// shown returns what the informer shows of this node.
func (s *store) shown(name slot.Name) *v1alpha1.SlotClaim {
	obj, _, _ := s.cached.GetByKey(name.String())
	if claim, ok := obj.(*v1alpha1.SlotClaim); ok && claim.Spec.NodeName == s.node {
		return claim
	}
	return nil
}

// names returns the slots of which the node has claims.
func (s *store) names() []slot.Name {
	var names []slot.Name
	for _, obj := range s.cached.List() {
		if name, err := obj.(*v1alpha1.SlotClaim).Slot(); err == nil {
			names = append(names, name)
		}
	}
	return names
}

// all returns this node's claims, in no order, but for those that are being deleted.
// They are not to be changed.
func (s *store) all() []*v1alpha1.SlotClaim {
	var cached []*v1alpha1.SlotClaim
	for _, obj := range s.cached.List() {
		if claim := obj.(*v1alpha1.SlotClaim); claim.Spec.NodeName == s.node {
			cached = append(cached, claim)
		}
	}
	return slices.DeleteFunc(s.own.Merge(cached), func(c *v1alpha1.SlotClaim) bool { return c.DeletionTimestamp != nil })
}

// saw is to be called for each claim that the informer has begun or ceased to show.
func (s *store) saw(name slot.Name, uid types.UID) {
	if claim := s.shown(name); claim == nil || claim.UID != uid {
		s.own.Gone(name.String(), uid)
	}
}

// create creates a claim; wrote says that it did. When there is one already that is
// not the same, it returns that. One that is the same and that others may be deleting, as
// stands says, is replaced: their delete is of its UID. After an error the claim may be
// there: the informer will show it.
func (s *store) create(ctx context.Context, name slot.Name, spec v1alpha1.SlotClaimSpec, owner metav1.OwnerReference, stands func(slot.Name, *v1alpha1.SlotClaim) bool) (wrote bool, other *v1alpha1.SlotClaim, err error) {
	want := v1alpha1.NewSlotClaim(name, spec, owner)
	for range createAttempts {
		got, err := s.api().Create(ctx, want, metav1.CreateOptions{FieldManager: "kubecri"})
		if err == nil {
			s.own.Wrote(got)
			return true, nil, nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return false, nil, fmt.Errorf("create SlotClaim %s: %w", name, err)
		}
		there, err := s.api().Get(ctx, name.String(), metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err): // it went in between
		case err != nil:
			return false, nil, fmt.Errorf("look who has SlotClaim %s: %w", name, err)
		case same(there, spec) && !stands(name, there):
			if err := s.remove(ctx, name, there.UID); err != nil {
				return false, nil, fmt.Errorf("replace SlotClaim %s, which may be released: %w", name, err)
			}
		case same(there, spec):
			s.own.Wrote(there)
			return false, nil, nil
		default:
			return false, there, nil
		}
	}
	return false, nil, fmt.Errorf("create SlotClaim %s: %w", name, errContested)
}

// remove deletes the claim, and no later one of the name.
func (s *store) remove(ctx context.Context, name slot.Name, uid types.UID) error {
	err := s.api().Delete(ctx, name.String(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete SlotClaim %s: %w", name, err)
	}
	s.own.Deleted(name.String(), uid)
	return nil
}

func (s *store) api() typed.SlotClaimInterface { return s.client.KubeslotV1alpha1().SlotClaims() }
