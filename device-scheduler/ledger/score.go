package ledger

// ScoreInput is how well a node can serve a request, averaged over its parts.
type ScoreInput struct {
	// Free is the share, 0 to 1, of the slots that the node reaches and that
	// are free.
	Free float64
	// Local is the share, 0 to 1, of the request that free slots of devices
	// could serve which no other node reaches.
	Local float64
}

// ScoreInputs looks at the request on the nodes at the places. It reads the ledger, as it is now.
func (v *View) ScoreInputs(places []int) []ScoreInput {
	inputs, parts := make([]ScoreInput, len(places)), 0.0
	for _, dm := range v.demands {
		for _, w := range dm.wants {
			parts++
			for i, place := range places {
				inputs[i].add(w, dm.config.reach.of(v.numbers[place]))
			}
		}
	}
	for i := range inputs {
		inputs[i].Free /= max(1, parts)
		inputs[i].Local /= max(1, parts)
	}
	return inputs
}

// add adds what nodes of the class have for one part of a request.
func (in *ScoreInput) add(w want, at *class) {
	has, local := at.has(w.device), 0
	switch {
	case w.device == nil:
		local = at.own()
	case has.slots > 0 && at.alone(w.device.group):
		local = has.free
	}
	if has.slots > 0 {
		in.Free += float64(has.free) / float64(has.slots)
		in.Local += min(1, float64(local)/float64(w.Count))
	}
}
