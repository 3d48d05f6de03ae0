package uevent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubeslot/kubeslot/discovery/sysfs"
	"github.com/kubeslot/kubeslot/discovery/sysfs/sysfstest"
	"github.com/kubeslot/kubeslot/test/await"
)

const usb2 = "/devices/pci0000:00/0000:00:15.0/usb2"

// source stands in for Watch: the test sends the events.
type source struct {
	events chan *Event
	starts chan struct{}
	stops  chan struct{}
}

func newSource() *source {
	return &source{events: make(chan *Event), starts: make(chan struct{}, 10), stops: make(chan struct{}, 10)}
}

func (s *source) watch(ctx context.Context, changed func(*Event)) error {
	s.starts <- struct{}{}
	changed(nil)
	for {
		select {
		case <-ctx.Done():
			s.stops <- struct{}{}
			return ctx.Err()
		case e := <-s.events:
			changed(e)
		}
	}
}

// follow watches with the monitor and returns the changes and how to end it.
func follow(t *testing.T, m *Monitor) (<-chan Change, func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	changes, done := make(chan Change, 100), make(chan error, 1)
	go func() { done <- m.Watch(ctx, func(c Change) { changes <- c }) }()
	end := sync.OnceValue(func() error {
		cancel()
		return await.Next(t, "Watch to end", done)
	})
	t.Cleanup(func() { _ = end() })
	return changes, end
}

func names(devices []*sysfs.Device) string {
	var all []string
	for _, d := range devices {
		all = append(all, d.Name())
	}
	return strings.Join(all, " ")
}

func TestMonitor(t *testing.T) {
	machine := sysfstest.New(t, sysfstest.Recording(t, "serial"))
	events := newSource()
	monitor := &Monitor{Tree: machine.Tree, Events: events.watch}
	changes, end := follow(t, monitor)
	all := await.Next(t, "all devices", changes)
	if got := names(all.Devices); !all.All || got != "0000:00:14.0 usb1 1-2 1-2:1.0 ttyUSB0 ttyUSB0" {
		t.Fatalf("the first change is %+v, devices %s", all, got)
	}

	machine.Add(t, sysfstest.Recording(t, "camera"))
	events.events <- &Event{Action: "add", Path: usb2}
	events.events <- &Event{Action: "add", Path: usb2 + "/2-1"}
	// In one change or in two, and perhaps once more: udevd may have been at work when they were read.
	for seen := ""; !strings.Contains(seen, "usb2") || !strings.Contains(seen, "2-1"); {
		added := await.Next(t, "two new devices", changes)
		if added.All || len(added.Gone) > 0 || len(added.Devices) == 0 {
			t.Fatalf("after %q came %+v, want usb2 and 2-1", seen, added)
		}
		seen += names(added.Devices) + " "
	}

	machine.Remove(t, usb2)
	events.events <- &Event{Action: "remove", Path: usb2}
	var gone []string
	for !slices.Contains(gone, usb2) { // another look at what was added may come first
		change := await.Next(t, "a device that is gone", changes)
		gone = append(gone, change.Gone...)
		if change.All || len(gone) > 0 && len(change.Devices) > 0 {
			t.Errorf("%v are gone, and then came %+v", gone, change)
		}
	}
	slices.Sort(gone)
	if diff := cmp.Diff([]string{usb2, usb2 + "/2-1"}, gone); diff != "" {
		t.Errorf("gone with its parent (-want +got):\n%s", diff)
	}

	// The second watcher has the same devices, and no socket of its own.
	others, endOther := follow(t, monitor)
	if second := await.Next(t, "all devices for the second watcher", others); len(second.Devices) != len(all.Devices) ||
		second.Devices[1] != all.Devices[1] {
		t.Errorf("the second watcher has other devices: %s", names(second.Devices))
	}
	if err := end(); !errors.Is(err, context.Canceled) {
		t.Errorf("Watch() = %v, want %v", err, context.Canceled)
	}
	machine.Add(t, sysfstest.Recording(t, "camera"))
	events.events <- nil
	scanned := await.Next(t, "all devices, after events were lost", others)
	for !scanned.All { // The second look at usb2.
		scanned = await.Next(t, "all devices, after events were lost", others)
	}
	if !strings.Contains(names(scanned.Devices), "video0") {
		t.Errorf("after events were lost, the devices are %s", names(scanned.Devices))
	}
	if len(events.stops) != 0 || len(events.starts) != 1 {
		t.Errorf("%d sockets were opened and %d closed, want one that stays", len(events.starts), len(events.stops))
	}
	_ = endOther()
	await.Next(t, "the socket to be closed after the last watcher", events.stops)

	// It starts again for the next one.
	again, _ := follow(t, monitor)
	await.Next(t, "all devices again", again)
}

func TestAttributesThatChangeWithoutAnEvent(t *testing.T) {
	machine := sysfstest.New(t, sysfstest.Recording(t, "serial"))
	monitor := &Monitor{Tree: machine.Tree, ScanInterval: 50 * time.Millisecond, Events: newSource().watch}
	changes, _ := follow(t, monitor)
	before := await.Next(t, "all devices", changes)
	if value, _ := before.Devices[2].Attr("product"); value != "FT232R USB UART" {
		t.Fatalf("product is %q", value)
	}
	machine.SetAttr(t, before.Devices[2].Path(), "product", "New firmware")
	await.That(t, "the attribute's new value", func() bool {
		value, _ := await.Next(t, "a scan", changes).Devices[2].Attr("product")
		return value == "New firmware"
	})
}

func TestARenamedDeviceTakesItsChildrenAlong(t *testing.T) {
	tap := func(name string) string {
		return "P: /devices/virtual/net/" + name + "\nE: SUBSYSTEM=net\n\nP: /devices/virtual/net/" + name + "/macvtap/tap4\nN: tap4\nE: SUBSYSTEM=macvtap\n"
	}
	machine := sysfstest.New(t, tap("old"))
	events := newSource()
	changes, _ := follow(t, &Monitor{Tree: machine.Tree, Events: events.watch})
	await.Next(t, "all devices", changes)
	machine.Remove(t, "/devices/virtual/net/old")
	machine.Add(t, tap("new"))
	events.events <- &Event{Action: "move", Path: "/devices/virtual/net/new", Properties: map[string]string{"DEVPATH_OLD": "/devices/virtual/net/old"}}
	got := await.Next(t, "the renaming", changes)
	if diff := cmp.Diff([]string{"/devices/virtual/net/old", "/devices/virtual/net/old/macvtap/tap4"}, got.Gone); diff != "" || names(got.Devices) != "new tap4" {
		t.Errorf("new: %s; gone (-want +got):\n%s", names(got.Devices), diff)
	}
}

// A device that is there stays, though it cannot be listed or read for once, as when this process has too
// many open files.
func TestAScanKeepsWhatCannotBeRead(t *testing.T) {
	machine := sysfstest.New(t, sysfstest.Recording(t, "serial"))
	events := newSource()
	changes, _ := follow(t, &Monitor{Tree: machine.Tree, Events: events.watch})
	before := await.Next(t, "all devices", changes)
	unreadable := before.Devices[len(before.Devices)-1].Path() + "/uevent"
	for _, file := range []string{unreadable, "/bus/usb/devices"} {
		file = machine.Tree.Sys + file
		if err := errors.Join(os.Rename(file, file+".aside"), os.Symlink(filepath.Base(file), file)); err != nil {
			t.Fatal(err) // a link to itself
		}
	}
	events.events <- nil
	scanned := await.Next(t, "a scan", changes)
	if got, want := names(scanned.Devices), names(before.Devices); !scanned.All || got != want {
		t.Errorf("after the scan there are %s, want %s", got, want)
	}
	machine.Remove(t, before.Devices[2].Path()) // with all below it
	events.events <- nil
	if got := names(await.Next(t, "another scan", changes).Devices); got != "0000:00:14.0 usb1" {
		t.Errorf("at last there are %s", got)
	}
}

func TestWithoutUevents(t *testing.T) {
	machine := sysfstest.New(t, sysfstest.Recording(t, "serial"))
	refused := func(context.Context, func(*Event)) error { return errors.New("operation not permitted") }
	monitor := &Monitor{Tree: machine.Tree, ScanInterval: 50 * time.Millisecond, Events: refused}
	changes, _ := follow(t, monitor)
	await.Next(t, "all devices", changes)
	machine.Add(t, sysfstest.Recording(t, "camera"))
	await.That(t, "the camera", func() bool {
		return strings.Contains(names(await.Next(t, "a scan", changes).Devices), "video0")
	})
}

func TestNoSysfsEndsWatching(t *testing.T) {
	machine := sysfstest.New(t, sysfstest.Recording(t, "serial"))
	events := newSource()
	monitor := &Monitor{Tree: machine.Tree, Events: events.watch}
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	seen, done := make(chan struct{}, 10), make(chan error, 1)
	go func() { done <- monitor.Watch(ctx, func(Change) { seen <- struct{}{} }) }()
	await.Next(t, "all devices", seen)
	aside := filepath.Join(t.TempDir(), "sys")
	if err := os.Rename(machine.Tree.Sys, aside); err != nil {
		t.Fatal(err)
	}
	events.events <- nil
	if err := await.Next(t, "Watch to end without sysfs", done); err == nil ||
		!strings.Contains(err.Error(), "is sysfs mounted") {
		t.Errorf("Watch() = %v, want an error that asks for sysfs", err)
	}
	if err := os.Rename(aside, machine.Tree.Sys); err != nil {
		t.Fatal(err)
	}
	changes, _ := follow(t, monitor)
	await.Next(t, "all devices, once sysfs is back", changes)
}

// Of a device that is removed and added again before a watcher looks, the last counts.
func TestChangesThatWaitAreMerged(t *testing.T) {
	machine := sysfstest.New(t, sysfstest.Recording(t, "serial"))
	devices := sysfstest.Devices(t, machine.Tree)
	usb, tty := devices[2], devices[5]
	for name, tc := range map[string]struct {
		put     []Change
		devices string
		gone    []string
		all     bool
	}{
		"removed, added": {put: []Change{{Gone: []string{tty.Path()}}, {Devices: devices[5:]}}, devices: "ttyUSB0"},
		"added, removed": {put: []Change{{Devices: devices[5:]}, {Gone: []string{tty.Path()}}}, gone: []string{tty.Path()}},
		"two devices":    {put: []Change{{Devices: devices[5:]}, {Gone: []string{usb.Path()}}}, gone: []string{usb.Path()}, devices: "ttyUSB0"},
		"a scan":         {put: []Change{{Gone: []string{tty.Path()}}, {All: true, Devices: devices[2:3]}}, devices: "1-2", all: true},
		"after a scan":   {put: []Change{{All: true, Devices: devices[2:3]}, {Gone: []string{usb.Path()}}}, gone: []string{usb.Path()}, all: true},
	} {
		w := newWatcher()
		for _, c := range tc.put {
			w.put(c)
		}
		got, err := w.take()
		if names(got.Devices) != tc.devices || !cmp.Equal(got.Gone, tc.gone) || got.All != tc.all || err != nil {
			t.Errorf("%s: devices %q, gone %v, all %v, %v; want %q, %v, %v", name, names(got.Devices), got.Gone, got.All, err, tc.devices, tc.gone, tc.all)
		}
	}
}

// Find passes on what was found, and that it failed, to who awaits other things too.
func TestFind(t *testing.T) {
	machine := sysfstest.New(t, sysfstest.Recording(t, "serial"))
	events := newSource()
	looks, hold := make(chan bool, 10), make(chan struct{})
	found, ended := Find(t.Context(), &Monitor{Tree: machine.Tree, Events: events.watch}, func(c Change) (string,
		bool) {
		looks <- c.All
		if len(looks) > 1 {
			panic("a bug")
		}
		<-hold // as while a driver is busy with its device
		return names(c.Devices), true
	})
	if all := await.Next(t, "a look", looks); !all || len(found) > 0 {
		t.Errorf("at first a look at all: %v", all)
	}
	looks <- true
	close(hold)
	if got := await.Next(t, "what was found", found); !strings.Contains(got, "ttyUSB0") {
		t.Errorf("found %q", got)
	}
	go func() { // unless another look came by itself
		select {
		case events.events <- nil:
		case <-t.Context().Done():
		}
	}()
	if err := await.Next(t, "the end", ended); err == nil || !strings.Contains(err.Error(), "panic: a bug") {
		t.Errorf("ended with %v, want the panic", err)
	}
}
