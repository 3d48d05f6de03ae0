// Package debugecho is Akri's debugEcho discovery handler: it "finds" the
// devices that its Configuration lists, so that everything behind discovery can
// be tried without hardware.
package debugecho

import (
	"cmp"
	"context"
	"os"
	"strings"
	"time"

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

	// lookInterval is between two looks at the file, which may not be there yet, nor its directory.
	lookInterval = 200 * time.Millisecond

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
	file := cmp.Or(h.AvailabilityFile, DefaultAvailabilityFile)
	looks := time.NewTicker(lookInterval)
	defer looks.Stop()
	report = discovery.Changes(report)
	for {
		if isOffline(file) {
			report(discovery.Result{Shared: online.Shared})
		} else {
			report(online)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-looks.C:
		}
	}
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
