package slotsearch

// number numbers the slots of each Instance, in the order of the wants. Of each level those of containers that run
// until the end come first, each with slots of its own. Other containers then use these as far as they can.
func (p *Problem) number(wants []*Want) {
	for _, w := range wants {
		span := p.Spans[w.Container]
		next := map[*Instance]int{} // the slots before have been looked at for this want
		w.Got = make([]Pick, 0, len(w.chosen))
		for _, in := range w.chosen {
			at := len(in.Slots)
			if span.To < p.last {
				for at = next[in]; at < len(in.Slots) && !in.Slots[at].serves(w, span); {
					at++
				}
				next[in] = at + 1
			}
			if at == len(in.Slots) {
				in.Slots = append(in.Slots, Slot{ByName: w.Instance != nil, until: -1, from: p.last + 1})
			}
			if s := &in.Slots[at]; span.To < p.last {
				s.until = span.To
			} else {
				s.from = span.From
			}
			w.Got = append(w.Got, Pick{Instance: in, Slot: at})
		}
	}
}

// serves reports whether the want's container, which runs in the span, can use the slot after some of the pod's
// containers and before another.
func (s *Slot) serves(w *Want, span Span) bool {
	return s.ByName == (w.Instance != nil) && s.until < span.From && span.To < s.from
}
