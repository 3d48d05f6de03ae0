package slotcache

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/kube-scheduler/informer"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// ClaimFeed follows SlotClaims. The ledger is their store. Those that this scheduler creates and deletes itself
// it knows by the watch, too: until then the API server is who says that a slot is taken.
func (b *Cache) ClaimFeed() *informer.Feed[*v1alpha1.SlotClaim] {
	return &informer.Feed[*v1alpha1.SlotClaim]{
		Names: func(visit func(string)) { b.Read(func(l *ledger.Ledger) { l.EachClaim(visit) }) },
		Set:   b.SetClaim, Deleted: b.DeleteClaim, Missing: b.missingClaim,
		Trim: func(*v1alpha1.SlotClaim) {},
	}
}

// SetClaim enters a claim, which may be known already.
func (b *Cache) SetClaim(c *v1alpha1.SlotClaim) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if uid := b.ledger.ClaimUID(c.Name); uid == string(c.UID) && uid != "" {
		return // a claim does not change
	}
	b.record(b.ledger.SetClaim(c))
	b.claimMade(c)
}

// DeleteClaim removes a claim that the watch shows deleted. A pod that waits had it from this scheduler, and is not
// tried for what it gave back unless it was refused since: it would claim and release without end.
func (b *Cache) DeleteClaim(c *v1alpha1.SlotClaim) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ledger.ClaimUID(c.Name) == string(c.UID) {
		b.gaveBack(types.UID(c.Spec.Holder), b.ledger.DeleteClaim(c.Name))
	}
}

func (b *Cache) missingClaim(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.record(b.ledger.DeleteClaim(name))
}
