package udev

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/discovery/sysfs"
	"github.com/kubeslot/kubeslot/discovery/sysfs/sysfstest"
	"github.com/kubeslot/kubeslot/discovery/uevent"
	"github.com/kubeslot/kubeslot/test/await"
)

type reported struct {
	discovery.Result
	at time.Time
}

// discover runs the handler and returns its reports.
func discover(t testing.TB, h *Handler, details string) <-chan reported {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	reports, done := make(chan reported, 1000), make(chan error, 1)
	go func() {
		done <- h.Discover(ctx, discovery.Request{Details: details}, func(r discovery.Result) { reports <- reported{r, time.Now()} })
	}()
	t.Cleanup(func() {
		cancel()
		if err := await.Next(t, "the end of Discover", done); !errors.Is(err, context.Canceled) {
			t.Errorf("Discover() = %v after its context ended, want %v", err, context.Canceled)
		}
	})
	return reports
}

// awaitNodes waits for a report with exactly these nodes.
func awaitNodes(t testing.TB, reports <-chan reported, want ...string) reported {
	t.Helper()
	last := "nothing"
	for deadline := time.After(await.Patience); ; {
		select {
		case r := <-reports:
			last = nodes(r.Devices)
			if last == strings.Join(want, " ") {
				return r
			}
		case <-deadline:
			t.Fatalf("no report of the nodes %q; the last one has %q", want, last)
		}
	}
}

func nodes(devices []discovery.Device) string {
	var all []string
	for _, d := range devices {
		all = append(all, d.Properties[devnodeProperty])
	}
	return strings.Join(all, " ")
}

func TestDiscoverFollowsTheMachine(t *testing.T) {
	m := sysfstest.New(t, sysfstest.Recording(t, "serial"))
	h := &Handler{&uevent.Monitor{Tree: m.Tree, ScanInterval: 20 * time.Millisecond}}
	cameras := discover(t, h, `udevRules: ['KERNEL=="video[0-3]", ATTR{index}=="0"']`)
	serial := discover(t, h, `udevRules: ['SUBSYSTEM=="tty"']`)
	if first := awaitNodes(t, cameras); first.Devices == nil || first.Shared {
		t.Errorf("the first report is %+v, want an empty one of local devices", first)
	}
	awaitNodes(t, serial, "/dev/ttyUSB0")

	m.Add(t, sysfstest.Recording(t, "camera"))
	awaitNodes(t, cameras, "/dev/video0", "/dev/video2")
	// Without a uevent: the attribute is seen at the next scan.
	m.SetAttr(t, usb2+"/2-1/2-1:1.0/video4linux/video0", "index", "7")
	awaitNodes(t, cameras, "/dev/video2")
	m.Remove(t, usb2+"/2-10")
	awaitNodes(t, cameras)

	if len(serial) > 0 {
		t.Errorf("reported %+v though nothing of the serial adapter changed", <-serial)
	}
}

func TestDiscoverFailsAtOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		details string
		tree    sysfs.Tree
		want    string
		invalid bool
	}{
		"bad details": {details: `udevRules: ['KERNEL=="a" x']`, want: "udevRules[0], column 13", invalid: true},
		"no sysfs":    {details: `udevRules: []`, tree: sysfs.Tree{Sys: "/nosuch"}, want: "is sysfs mounted at /nosuch?"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
		h := &Handler{&uevent.Monitor{Tree: tc.tree}}
		err := h.Discover(ctx, discovery.Request{Details: tc.details},
			func(r discovery.Result) { t.Errorf("%s: reported %+v", name, r) })
		cancel()
		if err == nil || !strings.Contains(err.Error(), tc.want) || errors.Is(err, discovery.ErrInvalid) != tc.invalid {
			t.Errorf("%s: Discover() = %v, want one with %q", name, err, tc.want)
		}
	}
}
