package uevent

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/kubeslot/kubeslot/discovery/sysfs/sysfstest"
	"github.com/kubeslot/kubeslot/test/await"
)

// start runs Watch and waits until it listens.
func start(t *testing.T, buffer int, changed func(*Event)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	listening, done := make(chan struct{}), make(chan error, 1)
	go func() {
		first := true
		done <- watch(ctx, buffer, func(e *Event) {
			if first {
				first = false
				if e != nil {
					t.Errorf("the first call has the event %+v, want none: look at all devices", e)
				}
				close(listening)
				return
			}
			changed(e)
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := await.Next(t, "the end of Watch", done); !errors.Is(err, context.Canceled) {
			t.Errorf("Watch() = %v after its context ended, want %v", err, context.Canceled)
		}
	})
	select {
	case <-listening:
	case err := <-done:
		done <- err
		t.Fatalf("Watch() = %v", err)
	}
}

// next waits for an event that is wanted; the others it drops.
func next(t *testing.T, events <-chan *Event, what string, wanted func(*Event) bool) *Event {
	t.Helper()
	deadline := time.After(await.Patience)
	for {
		select {
		case e := <-events:
			if wanted(e) {
				return e
			}
		case <-deadline:
			t.Fatalf("no event: %s", what)
		}
	}
}

// trigger makes the kernel send a change event of the loopback device, which only this
// network namespace sees.
func trigger(t *testing.T, sys string) {
	t.Helper()
	if err := os.WriteFile(sys+"/class/net/lo/uevent", []byte("change"), 0); err != nil {
		t.Fatal(err)
	}
}

func TestTheKernelsEvents(t *testing.T) {
	if !sysfstest.InNamespace(t) {
		return
	}
	events := make(chan *Event, 1000)
	start(t, receiveBuffer, func(e *Event) { events <- e })

	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "a"}, PeerName: "b"}
	if err := netlink.LinkAdd(veth); err != nil {
		t.Fatal(err)
	}
	at := func(action, path string) func(*Event) bool {
		return func(e *Event) bool { return e != nil && e.Action == action && e.Path == path && !e.Udevd }
	}
	added := next(t, events, "add a", at("add", "/devices/virtual/net/a"))
	if added.Subsystem != "net" || added.Properties["INTERFACE"] != "a" || added.Properties["IFINDEX"] == "" {
		t.Errorf("the event of a new device is %+v", added)
	}
	if err := netlink.LinkSetName(veth, "c"); err != nil {
		t.Fatal(err)
	}
	if moved := next(t, events, "move to c", at("move", "/devices/virtual/net/c")); moved.Properties["DEVPATH_OLD"] != "/devices/virtual/net/a" {
		t.Errorf("the event of a renamed device is %+v", moved)
	}
	if err := netlink.LinkDel(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "c"}}); err != nil {
		t.Fatal(err)
	}
	next(t, events, "remove c", at("remove", "/devices/virtual/net/c"))
}

// forge sends a message as a user process. uid is what it says that it is; only root
// may say what it is not.
func forge(t *testing.T, to *unix.SockaddrNetlink, uid uint32, message []byte) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	as := unix.UnixCredentials(&unix.Ucred{Pid: int32(os.Getpid()), Uid: uid, Gid: uid})
	// The group has other members, or the message is for nobody: both are no error here.
	if err := unix.Sendmsg(fd, message, as, to, 0); err != nil && !errors.Is(err, unix.ECONNREFUSED) {
		t.Fatalf("send to %+v as uid %d: %v", to, uid, err)
	}
}

// udevdMessage is a message as udevd sends it.
func udevdMessage(pairs string) []byte {
	var b bytes.Buffer
	b.WriteString(udevdPrefix)
	_ = binary.Write(&b, binary.BigEndian, uint32(udevdMagic))
	for _, n := range []uint32{udevdHeaderSize, udevdHeaderSize, uint32(len(pairs)), 0, 0, 0, 0} {
		_ = binary.Write(&b, binary.NativeEndian, n)
	}
	b.WriteString(pairs)
	return b.Bytes()
}

// ports returns the ports of this network namespace's sockets that hear uevents.
func ports(t *testing.T) []uint32 {
	t.Helper()
	table, err := os.ReadFile("/proc/net/netlink")
	if err != nil {
		t.Fatal(err)
	}
	var found []uint32
	for line := range strings.Lines(string(table)) {
		// sk, Eth (the protocol), Pid (the port), Groups
		fields := strings.Fields(line)
		if len(fields) < 4 || fields[1] != strconv.Itoa(unix.NETLINK_KOBJECT_UEVENT) || fields[2] == "0" {
			continue
		}
		port, err := strconv.ParseUint(fields[2], 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, uint32(port))
	}
	return found
}

func TestEventsOfAUserProcessAreRefused(t *testing.T) {
	if !sysfstest.InNamespace(t) {
		return
	}
	tree := sysfstest.Own(t)
	events := make(chan *Event, 1000)
	start(t, receiveBuffer, func(e *Event) { events <- e })

	pairs := "ACTION=add\x00DEVPATH=/devices/forged\x00SUBSYSTEM=tty\x00SEQNUM=1\x00"
	kernels, udevds := []byte("add@/devices/forged\x00"+pairs), udevdMessage(pairs)
	group := func(groups uint32) *unix.SockaddrNetlink {
		return &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}
	}
	listening := ports(t)
	if len(listening) == 0 {
		t.Fatal("/proc/net/netlink shows no socket that hears uevents")
	}
	for _, uid := range []uint32{0, 1000} {
		forge(t, group(groupKernel), uid, kernels)
		forge(t, group(groupKernel), uid, udevds)
		for _, port := range listening {
			forge(t, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Pid: port}, uid, kernels)
			forge(t, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Pid: port}, uid, udevds)
		}
	}
	forge(t, group(groupUdevd), 1000, udevds)
	forge(t, group(groupUdevd), 0, kernels) // root, but not as udevd sends
	trigger(t, tree.Sys)
	// They come in the order in which they were sent.
	if e := next(t, events, "any", func(*Event) bool { return true }); e == nil || e.Path != "/devices/virtual/net/lo" {
		t.Errorf("received %+v before the kernel's event", e)
	}

	// This is what distinguishes udevd's: root, in its group, with its header.
	forge(t, group(groupUdevd), 0, udevds)
	got := next(t, events, "root's in udevd's group", func(*Event) bool { return true })
	want := &Event{Action: "add", Path: "/devices/forged", Subsystem: "tty", Udevd: true, Properties: map[string]string{
		"ACTION": "add", "DEVPATH": "/devices/forged", "SUBSYSTEM": "tty", "SEQNUM": "1",
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("udevd's event (-want +got):\n%s", diff)
	}
}

func TestLostEventsAreTold(t *testing.T) {
	if !sysfstest.InNamespace(t) {
		return
	}
	tree := sysfstest.Own(t)
	events, hold := make(chan *Event, 100_000), make(chan struct{})
	added := false
	start(t, 1, func(e *Event) { // The kernel makes the buffer 2304 bytes.
		<-hold
		if e == nil && !added {
			// What waits is still to be read: the kernel drops this device's event, and does not say so again.
			added = true
			if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "a"}, PeerName: "b"}); err != nil {
				t.Error(err)
			}
		}
		events <- e
	})
	for range 1000 {
		trigger(t, tree.Sys)
	}
	close(hold)
	next(t, events, "that events were lost", func(e *Event) bool { return e == nil })
	ofDevice := func(name string) func(*Event) bool {
		return func(e *Event) bool { return e == nil || e.Path == "/devices/virtual/net/"+name }
	}
	next(t, events, "of a device that came while others' events were lost, or that its was, too", ofDevice("a"))
	// It goes on.
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "c"}, PeerName: "d"}); err != nil {
		t.Fatal(err)
	}
	next(t, events, "of a new device, or that it was lost", ofDevice("c"))
}

func TestParse(t *testing.T) {
	event := func(udevd bool, pairs ...string) *Event {
		properties := map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			properties[pairs[i]] = pairs[i+1]
		}
		return &Event{Action: properties["ACTION"], Path: properties["DEVPATH"], Subsystem: properties["SUBSYSTEM"], Properties: properties, Udevd: udevd}
	}
	good := "ACTION=add\x00DEVPATH=/devices/x\x00"
	wrongMagic, far, short := udevdMessage(good), udevdMessage(good), udevdMessage(good)
	wrongMagic[8] = 0
	binary.NativeEndian.PutUint32(far[16:], 1<<31)
	binary.NativeEndian.PutUint32(short[20:], 0xffffffff)
	for name, tc := range map[string]struct {
		message string
		udevd   bool
		want    *Event
	}{
		"the kernel's":      {message: "add@/devices/x\x00" + good + "SUBSYSTEM=tty\x00", want: event(false, "ACTION", "add", "DEVPATH", "/devices/x", "SUBSYSTEM", "tty")},
		"a value with =":    {message: "add@/devices/x\x00" + good + "A=b=c\x00", want: event(false, "ACTION", "add", "DEVPATH", "/devices/x", "A", "b=c")},
		"odd pairs":         {message: "add@/devices/x\x00" + good + "=x\x00y\x00\x00", want: event(false, "ACTION", "add", "DEVPATH", "/devices/x")},
		"udevd's":           {message: string(udevdMessage(good)), udevd: true, want: event(true, "ACTION", "add", "DEVPATH", "/devices/x")},
		"empty":             {},
		"no NUL":            {message: "add@/devices/x"},
		"no head":           {message: "\x00" + good},
		"no action":         {message: "add@/devices/x\x00DEVPATH=/devices/x\x00"},
		"no path":           {message: "add@/devices/x\x00ACTION=add\x00"},
		"a path with ..":    {message: "add@/devices/x\x00ACTION=add\x00DEVPATH=/devices/../x\x00"},
		"a relative path":   {message: "add@/devices/x\x00ACTION=add\x00DEVPATH=devices\x00"},
		"kernel's as udevd": {message: "add@/devices/x\x00" + good, udevd: true},
		"udevd's as kernel": {message: string(udevdMessage(good))},
		"wrong magic":       {message: string(wrongMagic), udevd: true},
		"offset too far":    {message: string(far), udevd: true},
		"length too long":   {message: string(short), udevd: true},
		"half a header":     {message: string(udevdMessage(good)[:20]), udevd: true},
	} {
		if diff := cmp.Diff(tc.want, parse([]byte(tc.message), tc.udevd)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("add@/devices/x\x00ACTION=add\x00DEVPATH=/devices/x\x00"), false)
	f.Add(udevdMessage("ACTION=add\x00DEVPATH=/devices/x\x00"), true)
	f.Fuzz(func(t *testing.T, message []byte, udevd bool) {
		if e := parse(message, udevd); e != nil && (e.Action == "" || !strings.HasPrefix(e.Path, "/") || strings.Contains(e.Path, "/../")) {
			t.Errorf("parse(%q) = %+v", message, e)
		}
	})
}

func TestTrusted(t *testing.T) {
	root, user := &unix.Ucred{Pid: 1}, &unix.Ucred{Pid: 1, Uid: 1000}
	for name, tc := range map[string]struct {
		sender    unix.SockaddrNetlink
		sent      *unix.Ucred
		udevd, ok bool
	}{
		"kernel":                 {sender: unix.SockaddrNetlink{Groups: groupKernel}, sent: root, ok: true},
		"root in its group":      {sender: unix.SockaddrNetlink{Groups: groupKernel, Pid: 7}, sent: root},
		"udevd":                  {sender: unix.SockaddrNetlink{Groups: groupUdevd, Pid: 7}, sent: root, udevd: true, ok: true},
		"user in udevd's group":  {sender: unix.SockaddrNetlink{Groups: groupUdevd, Pid: 7}, sent: user, udevd: true},
		"nobody in udevd's":      {sender: unix.SockaddrNetlink{Groups: groupUdevd, Pid: 7}, udevd: true},
		"to this socket alone":   {sender: unix.SockaddrNetlink{Pid: 7}, sent: root},
		"of port 0, to it alone": {sender: unix.SockaddrNetlink{}, sent: root},
	} {
		if udevd, ok := trusted(&tc.sender, tc.sent); ok != tc.ok || ok && udevd != tc.udevd {
			t.Errorf("%s: udevd %v, trusted %v; want %v, %v", name, udevd, ok, tc.udevd, tc.ok)
		}
	}
}
