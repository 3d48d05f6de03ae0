package udev

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/kubeslot/kubeslot/discovery/sysfs"
	"github.com/kubeslot/kubeslot/discovery/sysfs/sysfstest"
	"github.com/kubeslot/kubeslot/discovery/uevent"
	"github.com/kubeslot/kubeslot/test/await"
)

// loopControl makes and removes loop devices, which the whole machine sees.
type loopControl struct {
	file *os.File
	made []int
}

func openLoopControl(t testing.TB) *loopControl {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to make loop devices: sudo go test")
	}
	file, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("needs loop devices: %v (modprobe loop)", err)
	}
	c := &loopControl{file: file}
	t.Cleanup(func() {
		for _, n := range c.made {
			_ = unix.IoctlSetInt(int(file.Fd()), unix.LOOP_CTL_REMOVE, n)
		}
		file.Close()
	})
	return c
}

// add makes a loop device with a number that nobody uses.
func (c *loopControl) add(t testing.TB) int {
	t.Helper()
	for n := 300 + os.Getpid()%100; n < 1000; n++ {
		switch err := unix.IoctlSetInt(int(c.file.Fd()), unix.LOOP_CTL_ADD, n); {
		case err == nil:
			c.made = append(c.made, n)
			return n
		case errors.Is(err, unix.EPERM):
			t.Skip("needs the right to make loop devices (CAP_SYS_ADMIN)")
		case !errors.Is(err, unix.EEXIST):
			t.Fatalf("make loop%d: %v", n, err)
		}
	}
	t.Fatal("no number of a loop device is free")
	return 0
}

func (c *loopControl) remove(t testing.TB, n int) {
	t.Helper()
	await.That(t, fmt.Sprintf("loop%d to be removed", n), func() error {
		err := unix.IoctlSetInt(int(c.file.Fd()), unix.LOOP_CTL_REMOVE, n)
		// Somebody may have it open: udevd, or a test that looks at all disks.
		if err != nil && !errors.Is(err, syscall.EBUSY) {
			t.Fatalf("remove loop%d: %v", n, err)
		}
		return err
	})
	c.made = slices.DeleteFunc(c.made, func(m int) bool { return m == n })
}

func TestLoopDevices(t *testing.T) {
	control := openLoopControl(t)
	n := control.add(t)
	control.remove(t, n)
	h := &Handler{&uevent.Monitor{ScanInterval: time.Hour}} // so that uevents alone tell
	rule := fmt.Sprintf(`KERNEL=="loop%d", SUBSYSTEM=="block"`, n)
	reports := discover(t, h, fmt.Sprintf(`udevRules: ['%s']`, rule))
	attached := discover(t, h, fmt.Sprintf(`udevRules: ['%s, ATTR{loop/backing_file}=="*/disk"']`, rule))
	awaitNodes(t, reports)
	awaitNodes(t, attached)

	if again := control.add(t); again != n {
		t.Skipf("loop%d was taken by somebody else meanwhile", n)
	}
	node := fmt.Sprintf("/dev/loop%d", n)
	got := awaitNodes(t, reports, node)
	if want := fmt.Sprintf("/devices/virtual/block/loop%d", n); got.Devices[0].ID != want {
		t.Errorf("the ID is %s, want %s", got.Devices[0].ID, want)
	}
	// A pod would open it now.
	loop, err := os.OpenFile(node, os.O_RDWR, 0)
	if err != nil {
		t.Fatalf("the reported node cannot be opened: %v", err)
	}
	disk, err := os.Create(t.TempDir() + "/disk")
	if err != nil {
		t.Fatal(err)
	}
	defer disk.Close()
	if err := disk.Truncate(1 << 20); err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetInt(int(loop.Fd()), unix.LOOP_SET_FD, int(disk.Fd())); err != nil {
		t.Fatal(err)
	}
	awaitNodes(t, attached, node)
	if err := unix.IoctlSetInt(int(loop.Fd()), unix.LOOP_CLR_FD, 0); err != nil {
		t.Fatal(err)
	}
	loop.Close()
	awaitNodes(t, attached)
	control.remove(t, n)
	awaitNodes(t, reports)
}

// addMacvtap makes a network device with a character device, /dev/tapN.
func addMacvtap(t testing.TB, name string, parent netlink.Link) netlink.Link {
	t.Helper()
	link := &netlink.Macvtap{Macvlan: netlink.Macvlan{
		LinkAttrs: netlink.LinkAttrs{Name: name, ParentIndex: parent.Attrs().Index}, Mode: netlink.MACVLAN_MODE_BRIDGE,
	}}
	if err := netlink.LinkAdd(link); err != nil {
		if errors.Is(err, unix.EOPNOTSUPP) {
			t.Skip("needs macvtap (modprobe macvtap)")
		}
		t.Fatalf("add macvtap %s: %v", name, err)
	}
	return link
}

func addVeth(t testing.TB) netlink.Link {
	t.Helper()
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "veth0"}, PeerName: "veth1"}
	if err := netlink.LinkAdd(veth); err != nil {
		t.Fatal(err)
	}
	return veth
}

const macvtapRule = `udevRules: ['SUBSYSTEM=="macvtap", KERNEL=="tap[0-9]*", KERNELS=="plug*"']`

// A macvtap is a character device that one network namespace alone sees: a hotplugged
// device of one node.
func TestMacvtap(t *testing.T) {
	if !sysfstest.InNamespace(t) {
		return
	}
	reports := discover(t, &Handler{&uevent.Monitor{Tree: sysfstest.Own(t), ScanInterval: time.Hour}}, macvtapRule)
	elsewhere := discover(t,
		&Handler{&uevent.Monitor{Tree: sysfs.Tree{Sys: "/sys"}, ScanInterval: 50 * time.Millisecond}}, macvtapRule)
	awaitNodes(t, reports)
	awaitNodes(t, elsewhere)
	parent := addVeth(t)
	for range 3 {
		tap := addMacvtap(t, "plug0", parent)
		node := fmt.Sprintf("/dev/tap%d", tap.Attrs().Index)
		r := awaitNodes(t, reports, node)
		if want := fmt.Sprintf("/devices/virtual/net/plug0/macvtap/tap%d", tap.Attrs().Index); r.Devices[0].ID != want {
			t.Errorf("the ID is %s, want %s", r.Devices[0].ID, want)
		}
		if file, err := os.OpenFile(node, os.O_RDWR, 0); err != nil {
			t.Errorf("the reported node cannot be opened: %v", err)
		} else {
			file.Close()
		}
		// All of it gets another name, and its path with it.
		if err := netlink.LinkSetName(tap, "plug1"); err != nil {
			t.Fatal(err)
		}
		for !strings.Contains(r.Devices[0].ID, "/plug1/") {
			r = awaitNodes(t, reports, node)
		}
		if err := netlink.LinkDel(tap); err != nil {
			t.Fatal(err)
		}
		awaitNodes(t, reports)
	}
	if len(elsewhere) > 0 {
		t.Errorf("the machine's own sysfs shows another network namespace's device: %+v", <-elsewhere)
	}
}

// TestPluggedInToReport measures how long it takes from the system call that makes a
// device to the report of it.
func TestPluggedInToReport(t *testing.T) {
	if testing.Short() {
		t.Skip("measures times of a quiet machine: make test-all")
	}
	if !sysfstest.InNamespace(t) {
		return
	}
	reports := discover(t, &Handler{&uevent.Monitor{Tree: sysfstest.Own(t), ScanInterval: time.Hour}}, macvtapRule)
	awaitNodes(t, reports)
	parent := addVeth(t)
	var in, out []time.Duration
	for range 100 {
		began := time.Now()
		tap := addMacvtap(t, "plug0", parent)
		in = append(in, awaitNodes(t, reports, fmt.Sprintf("/dev/tap%d", tap.Attrs().Index)).at.Sub(began))
		began = time.Now()
		if err := netlink.LinkDel(tap); err != nil {
			t.Fatal(err)
		}
		out = append(out, awaitNodes(t, reports).at.Sub(began))
	}
	for name, all := range map[string][]time.Duration{"plugged in": in, "unplugged": out} {
		slices.Sort(all)
		t.Logf("%s → reported, of %d: p50 %v, p99 %v, longest %v", name, len(all), all[len(all)/2], all[len(all)*99/100], all[len(all)-1])
		if p99 := all[len(all)*99/100]; p99 > time.Second {
			t.Errorf("%s → reported: p99 is %v, want 1 s at most", name, p99)
		}
	}
}

// BenchmarkIdle is what a handler costs that has nothing to do, in parts of a core; with
// what the machine's other processes do to its devices.
func BenchmarkIdle(b *testing.B) {
	reports := discover(b, &Handler{&uevent.Monitor{}},
		`udevRules: ['KERNEL=="video[0-9]*", ATTRS{idVendor}=="046d"', 'SUBSYSTEM=="tty"']`)
	await.Next(b, "the first report", reports)
	before, began := cpuTime(b), time.Now()
	for b.Loop() {
		time.Sleep(5 * time.Second)
	}
	b.ReportMetric(100*(cpuTime(b)-before).Seconds()/time.Since(began).Seconds(), "%core")
}

func cpuTime(t testing.TB) time.Duration {
	t.Helper()
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// BenchmarkScan is what the periodic scan costs on this machine.
func BenchmarkScan(b *testing.B) {
	for b.Loop() {
		if _, err := (sysfs.Tree{}).Snapshot(); err != nil {
			b.Fatal(err)
		}
	}
}
