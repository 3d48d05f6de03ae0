// Package udev is the discovery handler for devices that are part of the node: it finds
// those that rules of udev(7) select. It reads sysfs and udevd's database itself, and
// hears of changes from the kernel and from udevd: see packages sysfs and uevent.
package udev

import (
	"context"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/discovery/uevent"
)

// Name is what Configurations select the handler by.
const Name = "udev"

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
	search, err := parseRequest(request)
	if err != nil {
		return err
	}
	f := newFinder(h.Monitor.Tree, search, request.Warnf)
	found, ended := uevent.Find(ctx, h.Monitor, func(change uevent.Change) ([]discovery.Device, bool) {
		if !f.apply(ctx, change) {
			return nil, false
		}
		return f.devices(), true
	})
	report = discovery.Changes(report)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-ended:
			return err
		case devices := <-found:
			report(discovery.Result{Devices: devices})
		}
	}
}
