package soplugins

import (
	"cmp"
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/kubecri/inject"
	"github.com/kubeslot/kubeslot/kubecri/soplugins/nodeinfo"
	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/contain"
	"github.com/kubeslot/kubeslot/types/device"
)

// Reasons of the node's events.
const (
	reasonFailed    = "DevicePluginFailed"
	reasonRecovered = "DevicePluginRecovered"
)

// drive keeps one plugin going until ctx is done.
func (p *Plugins) drive(ctx context.Context, plugin *plugin) {
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithName("device-plugins").WithValues("plugin", plugin.name))
	retry, wait := minRetry, time.Duration(0)
	if plugin.away() != nil { // it may come in a moment
		wait = comesWithin
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-plugin.wake:
		case <-time.After(wait):
		}
		fault := p.step(ctx, plugin)
		wait = p.config.Interval
		switch {
		case fault != nil:
			wait, retry = min(retry, p.config.Interval), min(2*retry, maxRetry)
		case plugin.labels == nil && p.asksLabels(plugin): // the Node is not known; written here alone
			wait = min(minRetry, p.config.Interval)
		default:
			retry = minRetry
		}
		if ctx.Err() != nil {
			return
		}
		if p.note(ctx, plugin, fault) {
			p.config.Changed()
		}
	}
}

// step brings the plugin as far as it goes: prepared, started, asked.
func (p *Plugins) step(ctx context.Context, plugin *plugin) *Fault {
	for _, s := range []struct {
		done   *bool
		method string
		f      func(device.Device) error
	}{
		{&plugin.prepared, methodNew, device.Device.New},
		{&plugin.started, methodStart, device.Device.Start},
	} {
		if *s.done { // written here alone
			continue
		}
		if _, fault := call(ctx, plugin.caller, s.method, func(d device.Device) (struct{}, error) { return struct{}{}, s.f(d) }); fault != nil {
			return fault
		}
		plugin.mu.Lock()
		*s.done = true
		plugin.mu.Unlock()
	}
	labels := p.label(ctx, plugin)
	update := p.update(ctx, plugin)
	lost := p.reportLosses(ctx, plugin) // what pods hold may be lost whether or not the rest is known
	return cmp.Or(update, labels, lost)
}

// update asks what the node has.
func (p *Plugins) update(ctx context.Context, plugin *plugin) *Fault {
	said, fault := call(ctx, plugin.caller, methodUpdateNodeInfo, p.ask)
	if fault != nil {
		return fault
	}
	if err := p.conflict(plugin, said.data); err != nil {
		return plugin.fault(methodUpdateNodeInfo, err)
	}
	plugin.mu.Lock()
	defer plugin.mu.Unlock()
	plugin.data, plugin.lapsed = said.data, false
	if plugin.remote() != nil {
		plugin.own = said.own
	}
	return nil
}

// said is what a plugin says.
type said struct {
	data *types.NodeInfo
	own  inject.Edits // of a Remote
}

func (p *Plugins) ask(d device.Device) (of said, err error) {
	info := types.NewNodeInfoWithName(p.config.Node)
	if err := d.UpdateNodeInfo(info); err != nil {
		return said{}, err
	}
	if of.data, err = nodeinfo.Check(info.Clone()); err != nil {
		return said{}, err
	}
	if r, ok := d.(Remote); ok {
		of.own, err = edits(d.GetName(), given{env: r.OwnVariables()})
	}
	return of, err
}

// note remembers how the plugin is and tells of it when that has changed. It
// reports whether NodeInfo may have changed.
func (p *Plugins) note(ctx context.Context, plugin *plugin, fault *Fault) bool {
	logger := klog.FromContext(ctx)
	plugin.mu.Lock()
	before := plugin.wrong
	plugin.wrong = fault
	changed := fault == nil
	if fault != nil {
		if before == nil {
			plugin.failing = time.Now()
		}
		if plugin.data == nil && !plugin.lapsed && time.Since(plugin.failing) >= settle {
			plugin.lapsed, changed = true, true
		}
	}
	first := false
	select {
	case <-plugin.tried:
	default:
		close(plugin.tried)
		first, changed = true, true
	}
	plugin.mu.Unlock()
	plugin.numbers.Up(fault == nil)

	switch {
	case fault != nil && (before == nil || !same(before, fault)):
		var stack []byte
		if panicked := (*contain.PanicError)(nil); errors.As(fault, &panicked) {
			stack = panicked.Stack
		}
		logger.Error(fault, "A device plugin fails, and is tried again; what it said last stays", "file", plugin.file, "stack", string(stack))
		p.event(corev1.EventTypeWarning, reasonFailed, "%v (%s); it is tried again, and containers that need it are not created meanwhile", fault, plugin.file)
	case fault == nil && before != nil:
		logger.Info("A device plugin works again")
		p.event(corev1.EventTypeNormal, reasonRecovered, "device plugin %q works again", plugin.name)
	case fault == nil && first:
		logger.Info("Started a device plugin", "file", plugin.file)
	}
	return changed
}

// same reports whether a fault is no news. What hangs or is away is so ever longer.
func same(a, b *Fault) bool {
	return a.Kind == b.Kind && (a.Kind == hanging || a.Kind == away || a.Error() == b.Error())
}

func (p *Plugins) event(kind, reason, format string, args ...any) {
	if p.config.Events != nil {
		p.config.Events.Eventf(NodeReference(p.config.Node), kind, reason, format, args...)
	}
}
