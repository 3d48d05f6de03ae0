package soplugins

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kubeslot/kubeslot/kubecri/inject"
	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/device"
)

// ErrNoPlugin is in the error of Allocate when no plugin of this node answers for
// what the container was assigned.
var ErrNoPlugin = errors.New("no device plugin of this node answers for it")

// Concerns reports whether the container was assigned, or asks in its annotation
// for, anything that is for device plugins: all but slots.
func Concerns(c *types.ContainerInfo) bool {
	return len(Asked(c)) > 0 || len(Assigned(c)) > 0
}

// Asked returns the requests of the annotation that are not for slots, sorted.
func Asked(c *types.ContainerInfo) []types.ResourceName {
	var names []types.ResourceName
	for _, name := range slices.Sorted(maps.Keys(c.Requests)) {
		if c.Requests[name] > 0 && !IsSlot(name) {
			names = append(names, name)
		}
	}
	return names
}

// IsSlot reports whether a resource, or a key of AllocateFrom, is for slots.
func IsSlot(name types.ResourceName) bool {
	return strings.HasPrefix(string(name), assignment.ResourcePrefix)
}

// Assigned returns the resources that the container was assigned, but for slots,
// sorted.
func Assigned(c *types.ContainerInfo) []types.ResourceName {
	all := map[types.ResourceName]bool{}
	for want, from := range c.AllocateFrom {
		if !IsSlot(want) {
			all[from] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// Allocate asks the plugins what the container of the pod gets for its assignment,
// and returns their edits in the order of the plugins. An error means that the
// container must not start: a plugin failed, or nobody answers for a part of what
// was assigned. Right after a start, wait for Tried first.
//
// A plugin answers for what it says that the node has, of what was assigned and of
// what the container asks for. What was assigned and no plugin says is answered for
// by any that gives the container something and has no other part in its assignment.
//
// All plugins together have the time of one call, or until ctx's deadline.
func (p *Plugins) Allocate(ctx context.Context, pod *types.PodInfo, container string) ([]inject.Edits, error) {
	if p != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, p.config.Timeout)
		defer cancel()
	}
	edits, err := p.allocate(ctx, pod, container)
	if errors.Is(err, ErrNoPlugin) && p != nil {
		if len(p.config.NotLoaded) > 0 {
			err = fmt.Errorf("%w; not loaded on this node: %s", err, strings.Join(p.config.NotLoaded, "; "))
		}
		for _, plugin := range p.all() {
			if away := plugin.away(); away != nil {
				err = fmt.Errorf("%w; not here now: %v", err, away)
			}
		}
	}
	return edits, err
}

func (p *Plugins) allocate(ctx context.Context, pod *types.PodInfo, container string) ([]inject.Edits, error) {
	c := pod.GetContainerInPod(container)
	if c == nil || !Concerns(c) {
		return nil, nil
	}
	if p == nil || len(p.all()) == 0 {
		return nil, fmt.Errorf("%s: %w: none is loaded, see --cridevices, and none serves, see --plugin-sockets",
			described(c), ErrNoPlugin)
	}
	plugins := p.all()
	assigned, asked := Assigned(c), Asked(c)
	for name, n := range c.KubeRequests { // of the spec, where it is known
		if n > 0 && !IsSlot(name) {
			asked = append(asked, name)
		}
	}
	parts := make([]part, 0, len(plugins))
	for _, plugin := range plugins {
		parts = append(parts, plugin.partOf(assigned, asked))
	}
	if err := waitFor(c, assigned, parts); err != nil {
		return nil, err
	}
	var all []inject.Edits
	for i, plugin := range plugins {
		if parts[i].out != nil {
			continue
		}
		e, fault := plugin.allocate(ctx, pod, container)
		if fault != nil && parts[i].optional && !parts[i].needed() && allOwned(assigned, parts) {
			continue
		}
		if fault != nil {
			return nil, fault
		}
		if !e.Empty() {
			parts[i].answered = true
			all = append(all, e)
		}
	}
	return all, covered(c, assigned, parts)
}

// part is a plugin's part in a container's assignment.
type part struct {
	plugin string
	// optional is set when others do not wait for it, and silent before it has said what the node has.
	optional, silent bool
	// out says why it cannot be asked; nil when it can.
	out error
	// owns are the resources that it says the node has.
	owns map[types.ResourceName]bool
	// asked is one that it says the node has and the container asks for; "" for none.
	asked    types.ResourceName
	answered bool
}

// needed reports whether the plugin says that the node has something of the container's.
func (p part) needed() bool { return len(p.owns) > 0 || p.asked != "" }

func (p *plugin) partOf(assigned, asked []types.ResourceName) part {
	part := part{plugin: p.name, optional: p.optional(), out: p.unavailable(), owns: map[types.ResourceName]bool{}}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case part.out != nil || p.started:
	case p.wrong != nil:
		part.out = p.wrong
	default:
		part.out = errors.New("it has not started yet")
	}
	part.silent = p.data == nil
	for _, name := range assigned {
		if p.data.Has(name) {
			part.owns[name] = true
		}
	}
	for _, name := range asked {
		if p.data.Has(name) {
			part.asked = max(part.asked, name) // any, but always the same
		}
	}
	return part
}

// waitFor refuses the container while a plugin that has, or may have, a part in
// its assignment cannot be asked. An optional one may have what no other names until it has said
// what the node has.
func waitFor(c *types.ContainerInfo, assigned []types.ResourceName, parts []part) error {
	all := allOwned(assigned, parts)
	for _, p := range parts {
		may := !p.optional && !(all && len(assigned) > 0) || !all && p.silent
		if p.out != nil && (p.needed() || may) {
			return fmt.Errorf("%s: device plugin %q cannot be asked now: %w", described(c), p.plugin, p.out)
		}
	}
	return nil
}

// allOwned reports whether plugins say that the node has all that was assigned: no other can have a part in it.
func allOwned(assigned []types.ResourceName, parts []part) bool {
	return !slices.ContainsFunc(assigned, func(name types.ResourceName) bool {
		return !slices.ContainsFunc(parts, func(p part) bool { return p.owns[name] })
	})
}

// covered wants an answer for everything that was assigned.
func covered(c *types.ContainerInfo, assigned []types.ResourceName, parts []part) error {
	stranger := slices.ContainsFunc(parts, func(p part) bool { return p.answered && len(p.owns) == 0 })
	for _, name := range assigned {
		owner := slices.IndexFunc(parts, func(p part) bool { return p.owns[name] })
		switch {
		case owner < 0 && !stranger:
			return fmt.Errorf("%s: %w: %q, which no plugin says that the node has; was the device taken out?", described(c), ErrNoPlugin, name)
		case owner >= 0 && !parts[owner].answered:
			return fmt.Errorf("%s: %w: device plugin %q, which says that the node has %q, gives nothing", described(c), ErrNoPlugin, parts[owner].plugin, name)
		}
	}
	for _, p := range parts {
		if p.asked != "" && !p.answered {
			return fmt.Errorf("it requests %q: %w: device plugin %q, which says that the node has it, gives nothing; does the scheduler have its half of the plugin (--devschedpath)?",
				p.asked, ErrNoPlugin, p.plugin)
		}
	}
	if len(assigned) == 0 && !slices.ContainsFunc(parts, func(p part) bool { return p.answered }) {
		return fmt.Errorf("%s: %w", described(c), ErrNoPlugin)
	}
	return nil
}

// described says what the container has to do with plugins.
func described(c *types.ContainerInfo) string {
	quoted := func(names []types.ResourceName) string {
		const enough = 4
		texts := make([]string, 0, enough+1)
		for _, name := range names[:min(len(names), enough)] {
			texts = append(texts, fmt.Sprintf("%q", name))
		}
		if len(names) > enough {
			texts = append(texts, fmt.Sprintf("and %d more", len(names)-enough))
		}
		return strings.Join(texts, ", ")
	}
	if assigned := Assigned(c); len(assigned) > 0 {
		return "it was assigned " + quoted(assigned)
	}
	return "it requests " + quoted(Asked(c))
}

// allocate asks one plugin. The order of what it returns is kept; a map has none.
func (p *plugin) allocate(ctx context.Context, pod *types.PodInfo, container string) (inject.Edits, *Fault) {
	pod = pod.Clone()
	return call(ctx, p.caller, methodAllocate, func(d device.Device) (inject.Edits, error) {
		mounts, devices, env, err := allocate(ctx, d, pod, container)
		if err != nil {
			return inject.Edits{}, err
		}
		return edits(p.name, given{slices.Clone(mounts), slices.Clone(devices), maps.Clone(env)})
	})
}
