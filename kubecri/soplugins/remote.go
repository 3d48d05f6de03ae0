package soplugins

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/kubeslot/kubeslot/plugins/remote"
	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/device"
	"github.com/kubeslot/kubeslot/wake"
)

// comesWithin is how long a plugin that is a process of its own may take to come, after it was
// added, before it counts as away: as long as containers wait by default (--device-timeout).
const comesWithin = 5 * time.Second

// Remote is a device plugin that is a process of its own, which comes and goes: remote.Device. It is
// not asked while it is away. Its errors name the plugin.
type Remote interface {
	device.Device
	device.VariableOwner
	// Away says why the plugin cannot be called now, with remote.ErrAway; nil if it can.
	Away() error
	// Required is whether containers that may need the plugin wait while it is away. Those that
	// need it do so in any case.
	Required() bool
	// AllocateContainer is called in place of Allocate.
	AllocateContainer(ctx context.Context, pod *types.PodInfo, container string) (
		[]device.Mount, []string, map[string]string, error)
}

// added has a plugin of a socket take part.
func (p *Plugins) added(of *remote.Plugin) remote.Handler {
	d := &remote.Device{Plugin: of, Node: p.config.Node, Holders: p.config.Holders}
	d.Wake = p.add(d)
	return d
}

// HoldersChanged says that the configuration's Holders may return something else.
func (p *Plugins) HoldersChanged() {
	p.sockets.HoldersChanged()
}

// add adds a plugin, once for each name. It returns what has the plugin asked now: to be called when it
// has something new to say, comes or goes.
func (p *Plugins) add(r Remote) (changed func()) {
	added := p.newPlugin(r.GetName(), p.config.Remote.Sockets, r)
	added.wake = wake.New()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list = append(slices.Clone(p.list), added)
	slices.SortFunc(p.list[len(p.config.Loaded):], func(a, b *plugin) int { return cmp.Compare(a.name, b.name) })
	if p.drives != nil {
		p.drives(added)
	}
	return added.wake.Send
}

// remote is nil for a plugin of a .so file.
func (c *caller) remote() Remote {
	r, _ := c.device.(Remote)
	return r
}

// optional reports whether nobody but who needs it waits for the plugin.
func (c *caller) optional() bool {
	r := c.remote()
	return r != nil && !r.Required()
}

// away says why the plugin's process cannot be called.
func (c *caller) away() error {
	if r := c.remote(); r != nil {
		return r.Away()
	}
	return nil
}

func isAway(err error) bool { return errors.Is(err, remote.ErrAway) }

// allocate asks a plugin in the way that it is asked.
func allocate(ctx context.Context, d device.Device, pod *types.PodInfo, container string) (
	[]device.Mount, []string, map[string]string, error) {
	if r, ok := d.(Remote); ok {
		return r.AllocateContainer(ctx, pod, container)
	}
	return d.Allocate(pod, pod.GetContainerInPod(container))
}
