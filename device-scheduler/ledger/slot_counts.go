package ledger

// SlotCounts counts a Configuration's slots by state.
type SlotCounts struct {
	Configuration string
	// Free slots, those held by pods, those that are claimed while no
	// known pod holds them, those that several pods hold, and those that are
	// nominated for a pod that preempted.
	Free, Held, Claimed, Conflicting, Nominated int
}

// slotUse is what a slot is counted as.
type slotUse struct {
	as           int
	ignoredClaim bool
}

const (
	unused = iota
	held
	claimed
	doublyAllocated
	nominated
	uses
)

// totals are of all devices and slices.
type totals struct {
	ignoredClaims, leftOut, unsound int
}

func (s *slotState) use() slotUse {
	use := slotUse{ignoredClaim: s.claim != nil && !s.claim.counts}
	switch {
	case len(s.holders) > 1:
		use.as = doublyAllocated
	case len(s.holders) == 1:
		use.as = held
	case s.claimed() != nil:
		use.as = claimed
	case s.nominee != "":
		use.as = nominated
	}
	return use
}

// countUse brings the counts up to date, and returns whether the slot is taken.
func (d *device) countUse(s *slotState) (taken bool) {
	before, now := s.counted, s.use()
	s.counted = now
	if d.kind != nil {
		d.kind.counts[before.as]--
		d.kind.counts[now.as]++
	}
	if before.ignoredClaim {
		d.totals.ignoredClaims--
	}
	if now.ignoredClaim {
		d.totals.ignoredClaims++
	}
	return now.as != unused
}

// Ignored counts the SlotClaims that do not count, and the devices that slices list and
// that are left out, once for each node.
func (l *Ledger) Ignored() (claims, devices int) {
	return l.totals.ignoredClaims, l.totals.leftOut + l.totals.unsound
}

// SlotCounts counts the slots of all Configurations, in no order. It reads counters, one
// set a Configuration.
func (l *Ledger) SlotCounts() []SlotCounts {
	all := make([]SlotCounts, 0, len(l.kinds))
	for _, k := range l.kinds {
		all = append(all, SlotCounts{Configuration: k.name, Free: k.free, Held: k.counts[held], Claimed: k.counts[claimed],
			Conflicting: k.counts[doublyAllocated], Nominated: k.counts[nominated]})
	}
	return all
}
