// Package usb is a discovery handler for USB devices by vendor, product and serial
// number. A device is one Instance with all its device nodes, has the same name when it
// is plugged in again, and containers see it under a path that does not change. See
// docs/discovery/usb.md.
package usb

import (
	"context"
	"time"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/discovery/uevent"
)

// Name is what Configurations select the handler by.
const Name = "usb"

// Handler is the handler.
type Handler struct {
	// Monitor follows the node's devices. Several handlers may share one.
	Monitor *uevent.Monitor
}

var _ discovery.Sharer = (*Handler)(nil)

// Name implements discovery.Handler.
func (*Handler) Name() string { return Name }

// Shared implements discovery.Sharer: a node's devices are its own.
func (*Handler) Shared() bool { return false }

// Discover implements discovery.Handler. It fails at once on bad details, and when there
// is no sysfs.
func (h *Handler) Discover(ctx context.Context, request discovery.Request, report func(discovery.Result)) error {
	d, err := parse(request)
	if err != nil {
		return err
	}
	f, state := newFinder(d, request.Before), newSettled()
	looks, ended := uevent.Find(ctx, h.Monitor, func(change uevent.Change) (l look, changed bool) {
		if changed = f.apply(change); changed {
			l.found, l.warnings = f.find()
		}
		return l, changed
	})
	var due <-chan time.Time
	report = discovery.Changes(report)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-ended:
			return err
		case l := <-looks:
			state.observe(time.Now(), l.found)
			for _, warning := range l.warnings {
				request.Warnf("%s: %s", Name, warning)
			}
		case <-due:
		}
		devices, next := state.advance(time.Now())
		report(discovery.Result{Devices: discovery.ByID(devices)})
		if !next.IsZero() {
			due = time.After(time.Until(next))
		}
	}
}

// look is what a look at the devices found.
type look struct {
	found    map[string]discovery.Device
	warnings []string
}
