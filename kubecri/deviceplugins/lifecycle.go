package deviceplugins

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/plugins/contain"
	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/device"
)

// Reasons of the node's events.
const (
	reasonFailed    = "DevicePluginFailed"
	reasonRecovered = "DevicePluginRecovered"
)

// drive keeps one plugin going until ctx is done.
func (p *Plugins) drive(ctx context.Context, one *plugin) {
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithName("device-plugins").WithValues("plugin", one.name))
	retry := minRetry
	for {
		fault := p.step(ctx, one)
		wait := p.config.Interval
		if fault != nil {
			wait, retry = min(retry, p.config.Interval), min(2*retry, maxRetry)
		} else {
			retry = minRetry
		}
		if ctx.Err() != nil {
			return
		}
		if p.note(ctx, one, fault) {
			p.config.Changed()
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// step brings the plugin as far as it goes: prepared, started, asked.
func (p *Plugins) step(ctx context.Context, one *plugin) *Fault {
	for _, s := range []struct {
		done   *bool
		method string
		f      func(device.Device) error
	}{
		{&one.prepared, methodNew, device.Device.New},
		{&one.started, methodStart, device.Device.Start},
	} {
		if *s.done { // written here alone
			continue
		}
		if _, fault := call(ctx, one.caller, s.method, func(d device.Device) (struct{}, error) { return struct{}{}, s.f(d) }); fault != nil {
			return fault
		}
		one.mu.Lock()
		*s.done = true
		one.mu.Unlock()
	}
	data, fault := call(ctx, one.caller, methodUpdateNodeInfo, func(d device.Device) (*types.NodeInfo, error) {
		info := types.NewNodeInfoWithName(p.config.Node)
		if err := d.UpdateNodeInfo(info); err != nil {
			return nil, err
		}
		return checked(info.Clone())
	})
	if fault != nil {
		return fault
	}
	if err := p.conflict(one, data); err != nil {
		return one.fault(methodUpdateNodeInfo, err)
	}
	one.mu.Lock()
	defer one.mu.Unlock()
	one.data, one.lapsed = data, false
	return nil
}

// note remembers how the plugin is and tells of it when that has changed. It
// reports whether NodeInfo may have changed.
func (p *Plugins) note(ctx context.Context, one *plugin, fault *Fault) bool {
	logger := klog.FromContext(ctx)
	one.mu.Lock()
	before := one.wrong
	one.wrong = fault
	changed := fault == nil
	if fault != nil {
		if before == nil {
			one.failing = time.Now()
		}
		if one.data == nil && !one.lapsed && time.Since(one.failing) >= settle {
			one.lapsed, changed = true, true
		}
	}
	first := false
	select {
	case <-one.tried:
	default:
		close(one.tried)
		first, changed = true, true
	}
	one.mu.Unlock()
	one.numbers.Up(fault == nil)

	switch {
	case fault != nil && (before == nil || !same(before, fault)):
		var stack []byte
		if panicked := (*contain.PanicError)(nil); errors.As(fault, &panicked) {
			stack = panicked.Stack
		}
		logger.Error(fault, "A device plugin fails, and is tried again; what it said last stays", "file", one.file, "stack", string(stack))
		p.event(corev1.EventTypeWarning, reasonFailed, "%v (%s); it is tried again, and containers that need it are not created meanwhile", fault, one.file)
	case fault == nil && before != nil:
		logger.Info("A device plugin works again")
		p.event(corev1.EventTypeNormal, reasonRecovered, "device plugin %q works again", one.name)
	case fault == nil && first:
		logger.Info("Started a device plugin", "file", one.file)
	}
	return changed
}

// same reports whether a fault is no news. What hangs does so ever longer.
func same(a, b *Fault) bool {
	return a.Kind == b.Kind && (a.Kind == hanging || a.Error() == b.Error())
}

func (p *Plugins) event(kind, reason, format string, args ...any) {
	if p.config.Events != nil {
		p.config.Events.Eventf(NodeReference(p.config.Node), kind, reason, format, args...)
	}
}
