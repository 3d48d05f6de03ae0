// Package usb is a discovery handler for USB devices by vendor, product and serial
// number. A device is one Instance with all its device nodes, has the same name when it
// is plugged in again, and containers see it under a path that does not change. See
// docs/discovery/usb.md.
package usb

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/discovery/sysfs"
	"github.com/kubeslot/kubeslot/discovery/uevent"
)

// Name is what Configurations select the handler by.
const Name = "usb"

// Handler is the handler. Its zero value is ready for use; it must not be copied, and
// its fields must not change after the first Discover. Its Discovers share one socket
// and one set of devices.
type Handler struct {
	// Tree is where devices are read: this machine, if zero.
	Tree sysfs.Tree

	// Monitor, if set, is used to follow devices, so that several handlers share one; its
	// Tree must be the same.
	Monitor *uevent.Monitor

	once sync.Once
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
	h.once.Do(func() {
		if h.Monitor == nil {
			h.Monitor = &uevent.Monitor{Tree: h.Tree}
		}
	})

	ctx, cancel := context.WithCancel(ctx)
	changes, failed := make(chan uevent.Change), make(chan error, 1)
	go func() {
		failed <- h.Monitor.Watch(ctx, func(change uevent.Change) {
			select {
			case changes <- change:
			case <-ctx.Done():
			}
		})
	}()
	finish := func() error {
		cancel()
		return <-failed
	}
	f, state := newFinder(d), newSettled()
	warned := map[string]bool{}
	var reported map[string]discovery.Device
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case err := <-failed:
			cancel()
			return err
		case <-ctx.Done():
			return finish()
		case change := <-changes:
			if !f.apply(change) {
				continue
			}
			found, warnings := f.find()
			state.observe(time.Now(), found)
			for _, warning := range warnings {
				if !warned[warning] {
					warned[warning] = true
					request.Warnf("%s: %s", Name, warning)
				}
			}
		case <-timer.C:
		}
		devices, next := state.advance(time.Now())
		if reported == nil || !reflect.DeepEqual(devices, reported) {
			reported = devices
			report(result(devices))
		}
		if !next.IsZero() {
			timer.Reset(time.Until(next))
		}
	}
}

func result(devices map[string]discovery.Device) (r discovery.Result) {
	for _, id := range slices.Sorted(maps.Keys(devices)) {
		r.Devices = append(r.Devices, devices[id])
	}
	return r
}
