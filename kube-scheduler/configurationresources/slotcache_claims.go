package configurationresources

import (
	"maps"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// claimed is what the slot cache knows of SlotClaims beside the ledger's account of them:
// how far the watch is, since this scheduler's own claims are entered ahead of it.
// The slot cache's lock protects it.
type claimed struct {
	// asOf is the resource version up to which the watch has shown them.
	asOf string
	// released are the UIDs of claims that were deleted here, until the watch has
	// shown that: it may show them created yet.
	released map[types.UID]bool
}

func (b *slotCache) claimFeed() *feed[*v1alpha1.SlotClaim] {
	return &feed[*v1alpha1.SlotClaim]{
		names: b.eachClaim, relisted: b.claimsListed,
		set: b.setClaim, deleted: b.deleteClaim, missing: b.missingClaim,
	}
}

func trimClaim(*v1alpha1.SlotClaim) {}

func (b *slotCache) eachClaim(visit func(name string)) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	b.ledger.EachClaim(visit)
}

// claimsListed begins a list. It may be older than what was known, where the API
// server was restored from a backup.
func (b *slotCache) claimsListed(version string, uids map[types.UID]bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.claimed.asOf = version
	maps.DeleteFunc(b.claimed.released, func(uid types.UID, _ bool) bool { return !uids[uid] })
}

// setClaim enters a claim that was listed, or that the watch shows.
func (b *slotCache) setClaim(c *v1alpha1.SlotClaim, listed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.shown(c)
	uid, version := b.ledger.ClaimVersion(c.Name)
	switch {
	case uid == string(c.UID) && uid != "": // a claim does not change
	case b.claimed.released[c.UID]:
	case !listed && newer(version, c.ResourceVersion): // claimSeen was ahead of the watch
	default:
		b.record(b.ledger.SetClaim(c))
	}
}

// deleteClaim removes a claim that the watch shows deleted.
func (b *slotCache) deleteClaim(c *v1alpha1.SlotClaim) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.shown(c)
	delete(b.claimed.released, c.UID)
	if uid, _ := b.ledger.ClaimVersion(c.Name); uid == string(c.UID) {
		b.record(b.ledger.DeleteClaim(c.Name))
	}
}

func (b *slotCache) missingClaim(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.record(b.ledger.DeleteClaim(name))
}

// shown records how far the watch is. The caller holds mu.
func (b *slotCache) shown(c *v1alpha1.SlotClaim) {
	if newer(c.ResourceVersion, b.claimed.asOf) {
		b.claimed.asOf = c.ResourceVersion
	}
}

// claimSeen enters a claim that was created here, or met in its place, ahead of the
// watch. One that the watch has shown is left to it: it may have been deleted since.
func (b *slotCache) claimSeen(c *v1alpha1.SlotClaim) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.claimed.asOf == "" || newer(c.ResourceVersion, b.claimed.asOf) {
		b.record(b.ledger.SetClaim(c))
	}
}

// claimGone removes a claim that was deleted here, ahead of the watch. Its pod has the
// slot yet, so that nobody is tried: it could be the pod itself, which would claim and
// release without end.
func (b *slotCache) claimGone(c *v1alpha1.SlotClaim) {
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
