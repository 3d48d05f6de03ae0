// Package udev is the discovery handler for devices that are part of the node: it finds
// those that rules of udev(7) select. It reads sysfs and udevd's database itself, and
// hears of changes from the kernel and from udevd: see packages sysfs and uevent.
package udev

import (
	"context"
	"fmt"
	"reflect"
	"runtime/debug"

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
	// Reading an attribute can take seconds while a driver is busy with its device. So
	// that Discover returns with ctx nevertheless, another goroutine does it.
	results, ended := make(chan discovery.Result), make(chan error, 1)
	go func() { ended <- h.follow(ctx, newFinder(h.Monitor.Tree, search, request.Warnf), results) }()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-ended:
			return err
		case result := <-results:
			report(result)
		}
	}
}

// follow sends what the finder finds whenever that changes.
func (h *Handler) follow(ctx context.Context, f *finder, results chan<- discovery.Result) (err error) {
	defer func() {
		if p := recover(); p != nil { // It would end the whole process here.
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	var sent *discovery.Result
	return h.Monitor.Watch(ctx, func(change uevent.Change) {
		if !f.apply(ctx, change) || ctx.Err() != nil {
			return
		}
		result := discovery.Result{Devices: f.devices()}
		if sent != nil && reflect.DeepEqual(*sent, result) {
			return
		}
		select {
		case results <- result:
			sent = &result
		case <-ctx.Done():
		}
	})
}
