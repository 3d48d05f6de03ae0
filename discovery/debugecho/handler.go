// Package debugecho is Akri's debugEcho discovery handler: it "finds" the
// devices that its Configuration lists, so that everything behind discovery can
// be tried without hardware.
package debugecho

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/discovery"
)

const (
	// Name is what Configurations select the handler by.
	Name = "debugEcho"

	// DescriptionProperty is the one property of each device: its description.
	DescriptionProperty = "DEBUG_ECHO_DESCRIPTION"

	// DefaultAvailabilityFile is where Akri's handler looks for "OFFLINE".
	DefaultAvailabilityFile = "/tmp/debug-echo-availability.txt"

	offline = "OFFLINE"

	// pollInterval is used only while the file's directory cannot be watched.
	pollInterval = time.Second

	// maxAvailabilityBytes bounds what is read of a file that anybody may write.
	maxAvailabilityBytes = 4 << 10
)

// Handler is the handler. Its zero value is ready for use.
type Handler struct {
	// AvailabilityFile makes all devices vanish while OFFLINE is anywhere in its
	// first 4 KiB, as in Akri; DefaultAvailabilityFile when empty.
	AvailabilityFile string

	// Local makes devices their node's alone where discoveryDetails do not say, as
	// DEBUG_ECHO_INSTANCES_SHARED=false does in Akri.
	Local bool
}

var _ discovery.Sharer = (*Handler)(nil)

// Name implements discovery.Handler.
func (*Handler) Name() string { return Name }

// Shared implements discovery.Sharer.
func (h *Handler) Shared() bool { return !h.Local }

// Discover implements discovery.Handler. It fails at once on bad details.
func (h *Handler) Discover(ctx context.Context, request discovery.Request, report func(discovery.Result)) error {
	online, err := parse(request, h.Shared())
	if err != nil {
		return err
	}
	file := h.AvailabilityFile
	if file == "" {
		file = DefaultAvailabilityFile
	}
	// The directory, since the file may not exist yet, and is often replaced.
	events, watchErrors, stop, err := watch(filepath.Dir(file))
	if err != nil {
		klog.FromContext(ctx).Error(err, "Looking at the availability file from time to time instead", "file", file, "interval", pollInterval)
	}
	defer stop()

	var poll <-chan time.Time
	if err != nil {
		ticker := time.NewTicker(pollInterval)
		defer ticker.Stop()
		poll = ticker.C
	}
	reported, wasOffline := false, false
	for {
		if isOffline := isOffline(file); !reported || isOffline != wasOffline {
			reported, wasOffline = true, isOffline
			if isOffline {
				report(discovery.Result{Shared: online.Shared})
			} else {
				report(online)
			}
		}
		if err := next(ctx, file, events, watchErrors, poll); err != nil {
			return err
		}
	}
}

// next returns when the file should be looked at again.
func next(ctx context.Context, file string, events <-chan fsnotify.Event, watchErrors <-chan error, poll <-chan time.Time) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-poll:
			return nil
		case event := <-events:
			switch filepath.Clean(event.Name) {
			case filepath.Clean(file):
				return nil
			case filepath.Dir(file):
				if event.Has(fsnotify.Remove) || event.Has(fsnotify.Rename) {
					// Ends Discover: its restart watches anew, or polls.
					return fmt.Errorf("directory %s of the availability file is gone", filepath.Dir(file))
				}
			}
		case err := <-watchErrors:
			if errors.Is(err, fsnotify.ErrEventOverflow) {
				return nil
			}
			return fmt.Errorf("watch directory %s: %w", filepath.Dir(file), err)
		}
	}
}

// watch returns nil channels, which block for ever, with an error.
func watch(dir string) (<-chan fsnotify.Event, <-chan error, func(), error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, nil, func() {}, fmt.Errorf("watch directory %s: %w", dir, err)
	}
	stop := func() { _ = watcher.Close() }
	if err := watcher.Add(dir); err != nil {
		return nil, nil, stop, fmt.Errorf("watch directory %s: %w", dir, err)
	}
	return watcher.Events, watcher.Errors, stop, nil
}

// isOffline is false for a file that does not exist or cannot be read. Only a
// regular file is opened: a pipe, which anybody can make in /tmp, would block.
func isOffline(file string) bool {
	if info, err := os.Stat(file); err != nil || !info.Mode().IsRegular() {
		return false
	}
	f, err := os.Open(file)
	if err != nil {
		return false
	}
	defer f.Close()
	content := make([]byte, maxAvailabilityBytes)
	n, _ := f.Read(content)
	return strings.Contains(string(content[:n]), offline)
}
