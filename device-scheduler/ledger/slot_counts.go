package ledger

// SlotCounts counts a Configuration's slots by state.
type SlotCounts struct {
	Configuration string
	// Free slots, those held by pods, those that are claimed while no
	// known pod holds them, those that several pods hold, and those that are
	// kept for a pod that preempted.
	Free, Held, Claimed, Conflicting, Nominated int
}

// Ignored counts the SlotClaims that do not count, and the devices that slices list and
// that are left out, once for each slice.
func (l *Ledger) Ignored() (claims, devices int) {
	for _, c := range l.claims {
		if !c.counts {
			claims++
		}
	}
	for _, s := range l.slices {
		devices += s.unsound
		for _, r := range s.reports {
			if s.node.leftOut(r) != nil {
				devices++
			}
		}
	}
	return claims, devices
}

// SlotCounts counts the slots of all Configurations, in no order.
func (l *Ledger) SlotCounts() []SlotCounts {
	counts := make(map[*kind]*SlotCounts, len(l.kinds))
	for _, k := range l.kinds {
		counts[k] = &SlotCounts{Configuration: k.name}
	}
	for _, d := range l.devices {
		c := counts[d.kind]
		if c == nil {
			continue
		}
		c.Free += d.nfree
		for _, s := range d.known {
			switch {
			case len(s.holders) > 1:
				c.Conflicting++
			case len(s.holders) == 1:
				c.Held++
			case s.claimed() != nil:
				c.Claimed++
			case s.nominee != "":
				c.Nominated++
			}
		}
	}
	all := make([]SlotCounts, 0, len(counts))
	for _, c := range counts {
		all = append(all, *c)
	}
	return all
}
