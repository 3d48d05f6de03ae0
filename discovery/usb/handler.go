// Package usb is a discovery handler for USB devices by vendor, product and serial
// number. A device is one Instance with all its device nodes, has the same name when it
// is plugged in again, and containers see it under a path that does not change. See
// docs/discovery/usb.md.
package usb

import (
	"context"
	"reflect"
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
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	changes, failed := make(chan uevent.Change), make(chan error, 1)
	go func() {
		failed <- h.Monitor.Watch(ctx, func(change uevent.Change) {
			select {
			case changes <- change:
			case <-ctx.Done():
			}
		})
	}()
	f, state := newFinder(d, request.Before), newSettled()
	var reported map[string]discovery.Device
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case err := <-failed: // also when ctx ends
			return err
		case change := <-changes:
			if !f.apply(change) {
				continue
			}
			found, warnings := f.find()
			state.observe(time.Now(), found)
			for _, warning := range warnings {
				request.Warnf("%s: %s", Name, warning)
			}
		case <-timer.C:
		}
		devices, next := state.advance(time.Now())
		if reported == nil || !reflect.DeepEqual(devices, reported) {
			reported = devices
			report(discovery.Result{Devices: discovery.ByID(devices)})
		}
		if !next.IsZero() {
			timer.Reset(time.Until(next))
		}
	}
}
