package ledger

import "github.com/kubeslot/kubeslot/types/slot"

// SlotCounts counts a Configuration's slots by state.
type SlotCounts struct {
	Configuration string
	// Free slots, those held by pods, ResourceClaims or kubelets in device-plugin
	// mode, those that are claimed for a pod that is not known to hold them, those
	// that several pods hold, and those that are nominated for a pod that preempted.
	Free, Held, Claimed, Conflicting, Nominated int
}

func (s *slotState) use() slotUse {
	use := slotUse{ignoredClaim: s.claim != nil && !s.claim.counts}
	switch {
	case len(s.holders) > 1:
		use.as = doublyAllocated
	case len(s.holders) == 1, s.claimed() != nil && !s.claim.ofPod:
		use.as = held
	case s.claimed() != nil:
		use.as = claimed
	case s.nominee != nil:
		use.as = nominated
	}
	return use
}

// countUse brings the counts up to date, and returns whether the slot is taken.
func (l *Ledger) countUse(d *device, s *slotState) (taken bool) {
	before, now := s.counted, s.use()
	s.counted = now
	if d.config != nil {
		d.config.counts[before.as]--
		d.config.counts[now.as]++
		d.config.wait(d, s, before.as == nominated, now.as == nominated)
	}
	if now.as == doublyAllocated {
		l.doublyAllocated[slot.Name{Instance: d.name, Index: s.index}] = s
	} else if before.as == doublyAllocated {
		delete(l.doublyAllocated, slot.Name{Instance: d.name, Index: s.index})
	}
	if before.ignoredClaim {
		l.totals.ignoredClaims--
	}
	if now.ignoredClaim {
		l.totals.ignoredClaims++
	}
	return now.as != unused
}

// wait records whether only a nomination keeps the slot from being free, and whether it was
// so before.
func (conf *configRecord) wait(d *device, s *slotState, before, now bool) {
	if before == now {
		return
	}
	if now {
		conf.waiting[d] = append(conf.waiting[d], s)
	} else if conf.waiting[d] = remove(conf.waiting[d], s); len(conf.waiting[d]) == 0 {
		delete(conf.waiting, d)
	}
}

// Ignored counts the SlotClaims that do not count, and the devices that slices list and
// that are left out, once for each node.
func (l *Ledger) Ignored() (claims, devices int) {
	return l.totals.ignoredClaims, l.totals.leftOut + l.totals.unsound
}

// SlotCounts counts the slots of all Configurations, in no order. It reads counters, one
// set a Configuration.
func (l *Ledger) SlotCounts() []SlotCounts {
	all := make([]SlotCounts, 0, len(l.configs))
	for _, conf := range l.configs {
		all = append(all, SlotCounts{Configuration: conf.name, Free: conf.free, Held: conf.counts[held], Claimed: conf.counts[claimed],
			Conflicting: conf.counts[doublyAllocated], Nominated: conf.counts[nominated]})
	}
	return all
}
