package slotcache

import (
	"maps"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/kube-scheduler/informer"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// ClaimFeed follows SlotClaims. The ledger is their store.
func (b *Cache) ClaimFeed() *informer.Feed[*v1alpha1.SlotClaim] {
	return &informer.Feed[*v1alpha1.SlotClaim]{
		Names:    func(visit func(string)) { b.Read(func(l *ledger.Ledger) { l.EachClaim(visit) }) },
		Relisted: b.claimsListed,
		Set:      b.SetClaim, Deleted: b.DeleteClaim, Missing: b.missingClaim,
		Trim: func(*v1alpha1.SlotClaim) {},
	}
}

// claimsListed begins a list. It may be older than what was known, where the API
// server was restored from a backup.
func (b *Cache) claimsListed(version string, uids map[types.UID]bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.claimed.asOf = version
	maps.DeleteFunc(b.claimed.released, func(uid types.UID, _ bool) bool { return !uids[uid] })
}

// SetClaim enters a claim that was listed, or that the watch shows.
func (b *Cache) SetClaim(c *v1alpha1.SlotClaim, listed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.shown(c)
	uid, version := b.ledger.ClaimVersion(c.Name)
	switch {
	case uid == string(c.UID) && uid != "": // a claim does not change
	case b.claimed.released[c.UID]:
	case !listed && newer(version, c.ResourceVersion): // ClaimSeen was ahead of the watch
	default:
		b.enterClaim(c)
	}
}

// DeleteClaim removes a claim that the watch shows deleted.
func (b *Cache) DeleteClaim(c *v1alpha1.SlotClaim) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.shown(c)
	delete(b.claimed.released, c.UID)
	if uid, _ := b.ledger.ClaimVersion(c.Name); uid == string(c.UID) {
		b.record(b.ledger.DeleteClaim(c.Name))
	}
}

func (b *Cache) missingClaim(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.record(b.ledger.DeleteClaim(name))
}

// shown records how far the watch is. The caller holds mu.
func (b *Cache) shown(c *v1alpha1.SlotClaim) {
	if newer(c.ResourceVersion, b.claimed.asOf) {
		b.claimed.asOf = c.ResourceVersion
	}
}

// ClaimSeen enters a claim that was created here, or met in its place, ahead of the
// watch. One that the watch has shown is left to it: it may have been deleted since.
func (b *Cache) ClaimSeen(c *v1alpha1.SlotClaim) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.claimed.asOf == "" || newer(c.ResourceVersion, b.claimed.asOf) {
		b.enterClaim(c)
	}
}

// enterClaim enters a claim, which may be known already. The caller holds mu.
func (b *Cache) enterClaim(c *v1alpha1.SlotClaim) {
	uid, _ := b.ledger.ClaimVersion(c.Name)
	b.record(b.ledger.SetClaim(c))
	if uid != string(c.UID) {
		b.claimMade(c)
	}
}

// ClaimGone removes a claim that was deleted here, ahead of the watch. Its pod has the
// slot yet, so that nobody is tried: it could be the pod itself, which would claim and
// release without end.
func (b *Cache) ClaimGone(c *v1alpha1.SlotClaim) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if uid, _ := b.ledger.ClaimVersion(c.Name); uid == string(c.UID) {
		b.claimed.released[c.UID] = true
		b.record(b.ledger.DeleteClaim(c.Name))
	}
}

// newer reports whether a is a later resource version than b.
func newer(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order > 0
}
