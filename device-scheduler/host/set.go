package host

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/kubeslot/kubeslot/device-scheduler/group"
	"github.com/kubeslot/kubeslot/types/contain"
	"github.com/kubeslot/kubeslot/types/devicescheduler"
)

// set are the device schedulers of a Host for a time, in the order in which they are asked. It never
// changes, and each Node has the one that it was added to: a plugin that is new is not asked about a
// node before it has counted the node's pods.
type set struct {
	plugins []*plugin
	group   *group.Scheduler // nil if no plugin uses it
}

// with returns the set with the plugin: in the place of the one of its name, or, by its name, after
// the first ones, which keep their places.
func (s *set) with(p *plugin, first int) (*set, error) {
	next := &set{plugins: slices.Clone(s.plugins), group: s.group}
	i := slices.IndexFunc(s.plugins, func(other *plugin) bool { return other.name == p.name })
	switch {
	case p.name == group.Name || i >= 0 && i < first:
		return nil, fmt.Errorf("the name %q is taken: remove one of the two plugins", p.name)
	case i >= 0:
		next.plugins[i] = p
	default:
		next.plugins = append(next.plugins, p)
		slices.SortFunc(next.plugins[first:], func(a, b *plugin) int { return cmp.Compare(a.name, b.name) })
	}
	if p.group && next.group == nil {
		next.group = &group.Scheduler{}
	}
	return next, nil
}

// plugin asks a device scheduler who it is.
func (h *Host) plugin(scheduler devicescheduler.DeviceScheduler) (*plugin, error) {
	p, err := contain.Do(h.options.Timeout, func() (*plugin, error) {
		return &plugin{name: scheduler.GetName(), scheduler: scheduler, group: scheduler.UsingGroupScheduler(),
			timeout: h.options.Timeout, onFault: h.options.OnFault, onCall: h.options.OnCall}, nil
	}, nil)
	if err != nil {
		return nil, fmt.Errorf("ask for its name: %w", err)
	}
	if remote, ok := scheduler.(Remote); ok {
		p.remote, p.timeout = remote, 0 // its calls have their own
	}
	return p, nil
}

func (h *Host) current() *set {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.set
}
