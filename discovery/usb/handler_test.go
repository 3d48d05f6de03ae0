package usb

import (
	"context"
	"errors"
	"fmt"
	"path"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/discovery/sysfs"
	"github.com/kubeslot/kubeslot/discovery/sysfs/sysfstest"
	"github.com/kubeslot/kubeslot/discovery/uevent"
)

// discoverer is a machine whose kernel sends uevents, with a Discover that runs.
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

// wants waits for the next report, which must be this. Those between may come before it, where
// several devices change and the machine is slow.
func (d *discoverer) wants(want string, between ...string) time.Time {
	d.t.Helper()
	got := d.next(want)
	for slices.Contains(between, got) {
		got = d.next(want)
	}
	if got != want {
		d.t.Fatalf("reported %q, want %q", got, want)
	}
	return time.Now()
}

// next waits for the next report, which is to be want.
func (d *discoverer) next(want string) string {
	d.t.Helper()
	select {
	case r := <-d.reports:
		if r.Shared {
			d.t.Fatalf("reported %q as shared", describe(r))
		}
		return describe(r)
	case err := <-d.done:
		d.t.Fatalf("Discover ended with %v while waiting for %q", err, want)
	case <-time.After(2 * time.Minute):
		d.t.Fatalf("no report of %q within two minutes", want)
	}
	panic("unreachable")
}

const (
	controller = "/devices/pci0000:00/0000:00:14.0"
	soon       = 2 * time.Second // a second, and as much again for a busy machine
)

func TestReplugAndReenumeration(t *testing.T) {
	d := discover(t, `{devices: [{vendor: "10c4", product: ea60}], containerPath: /dev/zigbee}`)
	d.wants("")

	// The fastest of some tries, for the machine may be busy.
	in, out := time.Hour, time.Hour
	for try := 0; try == 0 || max(in, out) > soon && try < 5; try++ {
		start := time.Now()
		d.plug("zigbee")
		// One report, with the right node, though the parts came one by one.
		in = min(in, d.wants(zigbeeID+" /dev/zigbee=ttyUSB2").Sub(start))
		start = time.Now()
		d.unplug(controller + "/usb1/1-2")
		out = min(out, d.wants("").Sub(start))
	}
	if max(in, out) > soon {
		t.Errorf("plugged in and reported after %v, and unplugged after %v, want at most %v", in, out, soon)
	}

	// Back, with other numbers: the same ID and path.
	d.plug("zigbee-again")
	d.wants(zigbeeID + " /dev/zigbee=ttyUSB5")

	// A reset: other numbers, the same device. It is not gone in between, if the machine is fast enough.
	resets := []struct{ name, node string }{{"zigbee", "ttyUSB2"}, {"zigbee-again", "ttyUSB5"}}
	for try := 0; ; try++ {
		reset := resets[try%2]
		start := time.Now()
		d.unplug(controller + "/usb1/1-2")
		d.plug(reset.name)
		want := zigbeeID + " /dev/zigbee=" + reset.node
		got := d.next(want)
		if got == want {
			break
		}
		if took := time.Since(start); got != "" || took < goneDelay || try == 5 {
			t.Fatalf("reported %q after %v, want %q", got, took, want)
		}
		d.wants(want)
	}

	// Others of no concern are not reported.
	d.plug("webcam")
	d.unplug(controller + "/usb1/1-2")
	d.wants("")
}

// A driver may come late: a device that must have a tty is found once it has.
func TestANodeThatComesLate(t *testing.T) {
	d := discover(t, `{devices: [{vendor: "10c4"}], containerPath: /dev/zigbee, node: tty}`)
	d.wants("")
	parts := strings.SplitAfter(recording(t, "zigbee"), "\n\n")
	d.machine.Add(t, parts[0])
	d.events <- &uevent.Event{Action: "add", Path: controller + "/usb1/1-2"}
	select {
	case r := <-d.reports:
		t.Fatalf("reported %q, without a tty", describe(r))
	case <-time.After(2 * newDelay):
	}
	d.plug("zigbee")
	d.wants(zigbeeID + " /dev/zigbee=ttyUSB2")
}

func TestTwoSticksWithoutSerialNumbers(t *testing.T) {
	d := discover(t, `{devices: [{vendor: "1a86", product: "7523"}], containerPath: /dev/stick}`, "hub", "ch340-left", "ch340-right")
	left, right := "1a86:7523@"+port+"1.1 /dev/stick=ttyUSB0", "1a86:7523@"+port+"1.10 /dev/stick=ttyUSB1"
	d.wants(left + ", " + right)
	d.unplug(controller + "/usb1/1-1/1-1.1")
	d.wants(right)
	d.plug("ch340-left")
	d.wants(left + ", " + right)
	d.unplug(controller + "/usb1/1-1") // the hub, with all behind it
	d.wants("", left, right)
}

func TestEndsAtOnce(t *testing.T) {
	d := discover(t, `devices: [{vendor: "10c4"}]`, "zigbee")
	d.wants(zigbeeID + " /dev/ttyUSB2=ttyUSB2")
	goroutines := runtime.NumGoroutine()
	start := time.Now()
	d.cancel()
	if err := <-d.done; !errors.Is(err, context.Canceled) {
		t.Errorf("Discover() = %v, want %v", err, context.Canceled)
	}
	if took := time.Since(start); took > time.Minute {
		t.Errorf("Discover() returned %v after its context ended", took)
	}
	deadline := time.Now().Add(time.Minute)
	for runtime.NumGoroutine() >= goroutines {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines are left, of %d", runtime.NumGoroutine(), goroutines)
		}
		time.Sleep(time.Millisecond)
	}
}

func TestNoSysfs(t *testing.T) {
	h := &Handler{&uevent.Monitor{Tree: sysfs.Tree{Sys: t.TempDir() + "/none"}}}
	err := h.Discover(t.Context(), discovery.Request{Details: "devices: []"}, func(discovery.Result) { t.Error("reported") })
	if err == nil || !strings.Contains(err.Error(), "is sysfs mounted") {
		t.Errorf("Discover() = %v, want one that says that sysfs is missing", err)
	}
}
