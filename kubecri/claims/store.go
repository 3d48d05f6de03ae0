package claims

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/kubeslot/kubeslot/kubecri/ownwrites"
	typed "github.com/kubeslot/kubeslot/types/client/clientset/versioned/typed/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// store reads and writes this node's claims. It sees its own writes before the
// informer does: a claim that was just deleted must not look held, and one that was
// just created is not created again.
type store struct {
	node string
	// ids says that ids of the kubelet's hold slots: a claim that names a pod is another mode's.
	ids     bool
	API     typed.SlotClaimInterface
	cached  cache.Indexer
	own     *ownwrites.Writes[*v1alpha1.SlotClaim]
	writing Locks[slot.Name] // one at a time
	// going says how claims are going, by UID, from when they are first to be deleted until they are.
	going sync.Map
}

// How a claim is going.
const (
	toGo      = iota // no deletion of it can have been done
	mayBeGone        // one was not answered: the API server may have done it, or do it at any time
)

// InstanceIndex is our index of informers of claims: by Instance.
const InstanceIndex = "kubecri/claims/instance"

// ByInstance makes that index.
var ByInstance = cache.Indexers{InstanceIndex: func(obj any) ([]string, error) {
	claim, ok := obj.(*v1alpha1.SlotClaim)
	if !ok {
		return nil, nil
	}
	name, err := claim.Slot()
	if err != nil {
		return nil, nil //nolint:nilerr // no slot's claim
	}
	return []string{name.Instance}, nil
}}

func newStore(node string, api typed.SlotClaimInterface, cached cache.Indexer, clock clock.PassiveClock) *store {
	return &store{node: node, API: api, cached: cached, own: ownwrites.New[*v1alpha1.SlotClaim](clock)}
}

// lock makes the caller the only one in this process who is at the slot's claim.
func (s *store) lock(ctx context.Context, name slot.Name) (unlock func(), err error) {
	if unlock, err = s.writing.Lock(ctx, name); err != nil {
		return nil, fmt.Errorf("wait for another change to the claim of slot %s: %w", name, err)
	}
	return unlock, nil
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
	if claim, ok := obj.(*v1alpha1.SlotClaim); ok && s.ours(claim) {
		return claim
	}
	return nil
}

func (s *store) ours(c *v1alpha1.SlotClaim) bool {
	return c.Spec.NodeName == s.node && (!s.ids || c.Spec.Pod == nil)
}

// names returns the slots of which the node has claims.
func (s *store) names() []slot.Name {
	var names []slot.Name
	for _, claim := range s.merged(s.cached.List()) {
		if name, err := claim.Slot(); err == nil {
			names = append(names, name)
		}
	}
	return names
}

// all returns this node's claims, in no order, but for those that are being deleted.
// They are not to be changed.
func (s *store) all() []*v1alpha1.SlotClaim {
	return slices.DeleteFunc(s.merged(s.cached.List()),
		func(c *v1alpha1.SlotClaim) bool { return c.DeletionTimestamp != nil })
}

// of returns those of an Instance.
func (s *store) of(instance string) []*v1alpha1.SlotClaim {
	cached, err := s.cached.ByIndex(InstanceIndex, instance)
	if err != nil { // only for an index that does not exist
		panic(err)
	}
	return slices.DeleteFunc(s.merged(cached), func(c *v1alpha1.SlotClaim) bool {
		name, err := c.Slot()
		return err != nil || name.Instance != instance || c.DeletionTimestamp != nil
	})
}

// merged are this node's claims, by those that the informer shows.
func (s *store) merged(shown []any) []*v1alpha1.SlotClaim {
	var cached []*v1alpha1.SlotClaim
	for _, obj := range shown {
		if claim := obj.(*v1alpha1.SlotClaim); s.ours(claim) {
			cached = append(cached, claim)
		}
	}
	return s.own.Merge(cached)
}

// saw is to be called for each claim that the informer has begun or ceased to show.
func (s *store) saw(name slot.Name, uid types.UID) {
	if claim := s.shown(name); claim == nil || claim.UID != uid {
		s.own.Gone(name.String(), uid)
		s.going.Delete(uid)
	}
}
