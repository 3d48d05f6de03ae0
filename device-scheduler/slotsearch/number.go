package slotsearch

// number numbers the slots of each Instance, in the order of the wants.
func (p *Problem) number(wants []*Want) {
	users := map[Pick][]int{}
	alone := p.last() > 0 // some containers run alone: before or after them others can have their slots
	for _, w := range wants {
		w.Got = make([]Pick, 0, len(w.chosen))
		for _, in := range w.chosen {
			pick := Pick{Instance: in, Slot: len(in.Slots)}
			if alone {
				for pick.Slot = 0; pick.Slot < len(in.Slots) && !p.shares(w, pick, users[pick]); {
					pick.Slot++
				}
				users[pick] = append(users[pick], w.Container)
			}
			if pick.Slot == len(in.Slots) {
				in.Slots = append(in.Slots, Slot{ByName: w.Instance != nil})
			}
			w.Got = append(w.Got, pick)
		}
	}
}

// shares reports whether a container can use a slot that others of the pod use before or
// after it.
func (p *Problem) shares(w *Want, pick Pick, users []int) bool {
	for _, c := range users {
		if p.Spans[c].meets(p.Spans[w.Container]) {
			return false
		}
	}
	return pick.Instance.Slots[pick.Slot].ByName == (w.Instance != nil)
}
