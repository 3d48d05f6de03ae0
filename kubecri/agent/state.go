package agent

import (
	"github.com/kubeslot/kubeslot/kubecri/agent/deviceslices"
	"github.com/kubeslot/kubeslot/kubecri/agent/reports"
	v0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// state is what is known now, for the writer of slices. What this node holds is looked at
// last: of a device that has gone since it was given, slots are held by then.
func (a *Agent) state() deviceslices.State {
	state := a.devices()
	if a.config.Held == nil {
		return state
	}
	held, known := a.config.Held()
	state.Holds = func(instance string) bool { return !known || held[instance] }
	return state
}

// HeldChanged says that Held may have something new to say. It does not block.
func (a *Agent) HeldChanged() { a.writer.Wake() }

// changesHeld is how many changes of devices are not in the slices yet.
func (a *Agent) changesHeld(held map[v1alpha1.ConfigurationReference]int) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	for name, s := range a.sessions {
		a.config.Metrics.ChangesHeld(name, held[reports.Reference(s.configuration)])
	}
}

// devices is what the sessions know now.
func (a *Agent) devices() deviceslices.State {
	state := deviceslices.State{Known: map[v1alpha1.ConfigurationReference]deviceslices.Known{},
		Exist: map[v1alpha1.ConfigurationReference]bool{}, Complete: true}
	all := a.allConfigurations()
	oldest := v0.OldestOf(all)
	a.mu.RLock()
	defer a.mu.RUnlock()
	for _, c := range all {
		name := c.Name
		state.Exist[reports.Reference(c)] = true
		if oldest.InForce(name) != c {
			continue
		}
		k := deviceslices.Known{MaxDevices: c.Spec.DevicesLimit()}
		if s := a.sessions[name]; s != nil && s.discovers(c, a.selects(c)) {
			k.Standing = s.standing
			state.Problems = append(state.Problems, s.toWrite()...)
		}
		if c.Spec.Discovery != nil {
			k.Label = name
		}
		state.Known[reports.Reference(c)] = k
		state.Complete = state.Complete && k.Settled
	}
	return state
}
