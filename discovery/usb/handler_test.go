package usb

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/discovery/sysfs"
	"github.com/kubeslot/kubeslot/discovery/sysfs/sysfstest"
	"github.com/kubeslot/kubeslot/discovery/uevent"
	"github.com/kubeslot/kubeslot/test/await"
)

// discoverer is a machine whose kernel sends uevents, with a Discover that runs. Its time, a bubble's, stands still
// while anything runs.
type discoverer struct {
	t       *testing.T
	machine *sysfstest.Machine
	events  chan *uevent.Event
	reports chan discovery.Result
	done    chan error
	cancel  context.CancelFunc
}

func discover(t *testing.T, details string, names ...string) *discoverer {
	t.Helper()
	d := &discoverer{t: t, machine: plugged(t, names...), events: make(chan *uevent.Event, 100),
		reports: make(chan discovery.Result, 100), done: make(chan error, 1)}
	h := &Handler{Monitor: &uevent.Monitor{Tree: d.machine.Tree, Events: func(ctx context.Context, changed func(*uevent.Event)) error {
		changed(nil)
		for {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case e := <-d.events:
				changed(e)
			}
		}
	}}}
	ctx, cancel := context.WithCancel(context.Background())
	d.cancel = cancel
	go func() {
		d.done <- h.Discover(ctx, discovery.Request{Details: details}, func(r discovery.Result) { d.reports <- r })
		close(d.done)
	}()
	t.Cleanup(func() {
		cancel()
		<-d.done
	})
	return d
}

// plug plugs in a recorded device, with an event for each part of it.
func (d *discoverer) plug(name string) {
	d.t.Helper()
	text := recording(d.t, name)
	d.machine.Add(d.t, text)
	for line := range strings.Lines(text) {
		if p, ok := strings.CutPrefix(strings.TrimSpace(line), "P: "); ok {
			d.events <- &uevent.Event{Action: "add", Path: p}
		}
	}
}

// unplug removes the device at a path and all below it, with an event for each.
func (d *discoverer) unplug(devicePath string) {
	d.t.Helper()
	devices := sysfstest.Devices(d.t, d.machine.Tree)
	d.machine.Remove(d.t, devicePath)
	for _, device := range slices.Backward(devices) {
		if device.Path() == devicePath || device.IsBelow(devicePath) {
			d.events <- &uevent.Event{Action: "remove", Path: device.Path()}
		}
	}
}

func describe(r discovery.Result) string {
	var devices []string
	for _, device := range r.Devices {
		main := ""
		for _, s := range device.DeviceSpecs {
			if s.ContainerPath == device.Properties[NodeProperty] {
				main = path.Base(s.HostPath)
			}
		}
		devices = append(devices, fmt.Sprintf("%s %s=%s", device.ID, device.Properties[NodeProperty], main))
	}
	return strings.Join(devices, ", ")
}

// wants waits for the next report, which must be this, and come within a second.
func (d *discoverer) wants(want string) {
	d.t.Helper()
	start := time.Now()
	r := await.Next(d.t, "a report of "+want, d.reports)
	if got := describe(r); got != want || r.Shared {
		d.t.Fatalf("reported %q, shared: %v; want %q", got, r.Shared, want)
	}
	if took := time.Since(start); took > time.Second {
		d.t.Errorf("%q was reported after %v", want, took)
	}
}

const controller = "/devices/pci0000:00/0000:00:14.0"

func TestReplugAndReenumeration(t *testing.T) { synctest.Test(t, testReplugAndReenumeration) }

func testReplugAndReenumeration(t *testing.T) {
	d := discover(t, `{devices: [{vendor: "10c4", product: ea60}], containerPath: /dev/zigbee}`)
	d.wants("")

	d.plug("zigbee")
	d.wants(zigbeeID + " /dev/zigbee=ttyUSB2") // one report, with the right node, though the parts came one by one
	d.unplug(controller + "/usb1/1-2")
	d.wants("")

	// Back, with other numbers: the same ID and path.
	d.plug("zigbee-again")
	d.wants(zigbeeID + " /dev/zigbee=ttyUSB5")

	// A reset, of 400 ms: other numbers, the same device. It is not gone in between.
	d.unplug(controller + "/usb1/1-2")
	time.Sleep(400 * time.Millisecond)
	d.plug("zigbee")
	d.wants(zigbeeID + " /dev/zigbee=ttyUSB2")

	// Others of no concern are not reported.
	d.plug("webcam")
	d.unplug(controller + "/usb1/1-2")
	d.wants("")
}

// A driver may come late: a device that must have a tty is found once it has.
func TestANodeThatComesLate(t *testing.T) { synctest.Test(t, testANodeThatComesLate) }

func testANodeThatComesLate(t *testing.T) {
	d := discover(t, `{devices: [{vendor: "10c4"}], containerPath: /dev/zigbee, node: tty}`)
	d.wants("")
	parts := strings.SplitAfter(recording(t, "zigbee"), "\n\n")
	d.machine.Add(t, parts[0])
	d.events <- &uevent.Event{Action: "add", Path: controller + "/usb1/1-2"}
	time.Sleep(time.Minute)
	if len(d.reports) > 0 {
		t.Fatalf("reported %q, without a tty", describe(<-d.reports))
	}
	d.plug("zigbee")
	d.wants(zigbeeID + " /dev/zigbee=ttyUSB2")
}

func TestTwoSticksWithoutSerialNumbers(t *testing.T) {
	synctest.Test(t, testTwoSticksWithoutSerialNumbers)
}

func testTwoSticksWithoutSerialNumbers(t *testing.T) {
	d := discover(t, `{devices: [{vendor: "1a86", product: "7523"}], containerPath: /dev/stick}`, "hub", "ch340-left", "ch340-right")
	left, right := "1a86:7523@"+port+"1.1 /dev/stick=ttyUSB0", "1a86:7523@"+port+"1.10 /dev/stick=ttyUSB1"
	d.wants(left + ", " + right)
	d.unplug(controller + "/usb1/1-1/1-1.1")
	d.wants(right)
	d.plug("ch340-left")
	d.wants(left + ", " + right)
	d.unplug(controller + "/usb1/1-1") // the hub, with all behind it
	d.wants("")
}

func TestEndsAtOnce(t *testing.T) { synctest.Test(t, testEndsAtOnce) }

func testEndsAtOnce(t *testing.T) {
	d := discover(t, `devices: [{vendor: "10c4"}]`, "zigbee")
	d.wants(zigbeeID + " /dev/ttyUSB2=ttyUSB2")
	d.cancel()
	synctest.Wait()
	if len(d.done) == 0 { // and no goroutine is left, or the bubble could not end
		t.Fatal("Discover() goes on")
	}
	if err := await.Next(t, "the end of Discover", d.done); !errors.Is(err, context.Canceled) {
		t.Errorf("Discover() = %v, want %v", err, context.Canceled)
	}
}

func TestNoSysfs(t *testing.T) {
	h := &Handler{&uevent.Monitor{Tree: sysfs.Tree{Sys: t.TempDir() + "/none"}}}
	err := h.Discover(t.Context(), discovery.Request{Details: "devices: []"}, func(discovery.Result) { t.Error("reported") })
	if err == nil || !strings.Contains(err.Error(), "is sysfs mounted") {
		t.Errorf("Discover() = %v, want one that says that sysfs is missing", err)
	}
}
