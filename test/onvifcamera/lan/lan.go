// Package lan gives a test a local network of its own: network namespaces, each
// with an interface on one bridge, over which real multicast goes. It needs root
// and skips the test without.
package lan

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/kubeslot/kubeslot/test/await"
)

const inNamespace = "KUBESLOT_TEST_LAN"

// Main runs a package's tests in a network namespace of their own, in which
// package lan may add and remove interfaces. It is called by TestMain. Without
// root the tests run where they are, and New skips.
func Main(m *testing.M) {
	if os.Getenv(inNamespace) != "" {
		lo, err := netlink.LinkByName("lo")
		if err == nil {
			err = netlink.LinkSetUp(lo)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "interface lo:", err)
			os.Exit(1)
		}
	}
	if os.Getenv(inNamespace) != "" || os.Geteuid() != 0 {
		os.Exit(m.Run())
	}
	again := exec.Command("/proc/self/exe", os.Args[1:]...)
	again.Env = append(os.Environ(), inNamespace+"=1")
	again.Stdin, again.Stdout, again.Stderr = os.Stdin, os.Stdout, os.Stderr
	again.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: unix.SIGKILL}
	runtime.LockOSThread() // Pdeathsig is of the thread
	err := again.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		os.Exit(0)
	case errors.As(err, &exit):
		os.Exit(exit.ExitCode())
	}
	fmt.Fprintln(os.Stderr, "no network namespace, so tests that need one skip:", err)
	os.Exit(m.Run())
}

// Outside runs fn in the network namespace that the tests were started in, from which
// it may reach other machines. Only sockets and processes that fn opens and starts
// itself are there.
func Outside(t testing.TB, fn func()) {
	t.Helper()
	if os.Getenv(inNamespace) == "" {
		fn()
		return
	}
	inside, err := netns.Get()
	if err != nil {
		t.Fatal("this process' network namespace:", err)
	}
	defer inside.Close()
	outside, err := netns.GetFromPid(os.Getppid())
	if err != nil {
		t.Fatal("the network namespace of the process that started this one:", err)
	}
	defer outside.Close()
	runtime.LockOSThread()
	if err := netns.Set(outside); err != nil {
		t.Fatal("leave the network namespace:", err)
	}
	defer func() { // also when fn ends the test
		if err := netns.Set(inside); err == nil {
			runtime.UnlockOSThread()
		} else {
			t.Error("return to the network namespace:", err)
		}
	}()
	fn()
}

// LAN is a network. The test's own process is on it too.
type LAN struct {
	t      testing.TB
	hub    *netlink.Handle
	br     int
	ns     netns.NsHandle // of the bridge
	own    netns.NsHandle // of the test's process
	device string         // of the test's process
	subnet byte
	next   byte
}

// Host is a namespace on a LAN, with interface eth0.
type Host struct {
	// IPv4 and IPv6 are the addresses: 192.168.77.n and fd77::n on the first network.
	IPv4, IPv6 netip.Addr

	lan   *LAN
	ns    netns.NsHandle
	index int // of the port at the bridge
}

// New makes a LAN, and puts the test's process on it as 192.168.77.1 and fd77::1, with
// interface eth0. It ends with the test.
func New(t testing.TB) *LAN {
	t.Helper()
	return NewOn(t, "eth0")
}

// NewOn is New with another interface, eth1 to eth9, and so another network:
// 192.168.78.0/24 and fd77:0:0:1::/64 for eth1.
func NewOn(t testing.TB, device string) *LAN {
	t.Helper()
	if os.Getenv(inNamespace) == "" {
		t.Skip("needs root, for network namespaces; and a TestMain that calls lan.Main")
	}
	l := &LAN{t: t, ns: newNamespace(t), device: device, subnet: device[len(device)-1] - '0'}
	var err error
	if l.hub, err = netlink.NewHandleAt(l.ns); err != nil {
		t.Fatal("netlink in the namespace of the bridge:", err)
	}
	t.Cleanup(l.hub.Close)
	br := &netlink.Bridge{LinkAttrs: netlink.NewLinkAttrs(), MulticastSnooping: new(bool)}
	br.Name = "br0"
	if err := errors.Join(l.hub.LinkAdd(br), l.hub.LinkSetUp(br)); err != nil {
		t.Fatal("bridge:", err)
	}
	l.br = br.Index
	if l.own, err = netns.Get(); err != nil {
		t.Fatal("this process' network namespace:", err)
	}
	t.Cleanup(func() { _ = l.own.Close() })
	t.Cleanup(l.Unplug)
	l.PlugIn()
	return l
}

// PlugIn gives the test's process its interface, after Unplug. The address is another.
func (l *LAN) PlugIn() {
	l.t.Helper()
	l.plugIn(l.own, l.device)
}

// Unplug removes the interface of the test's process.
func (l *LAN) Unplug() {
	l.t.Helper()
	link, err := netlink.LinkByName(l.device)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return
	}
	if err == nil {
		err = netlink.LinkDel(link)
	}
	if err != nil {
		l.t.Errorf("remove interface %s: %v", l.device, err)
	}
}

// Host adds a namespace.
func (l *LAN) Host() *Host {
	l.t.Helper()
	return l.plugIn(newNamespace(l.t), "eth0")
}

// newNamespace returns a network namespace that ends with the test.
func newNamespace(t testing.TB) netns.NsHandle {
	t.Helper()
	made := make(chan netns.NsHandle, 1)
	failed := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			failed <- err
			return
		}
		ns, err := netns.Get()
		if err != nil {
			failed <- err
			return
		}
		// Addresses are ready at once: nothing else has them.
		for _, scope := range []string{"all", "default"} {
			if err := os.WriteFile(filepath.Join("/proc/sys/net/ipv6/conf", scope, "accept_dad"), []byte("0"), 0); err != nil {
				failed <- err
				return
			}
		}
		made <- ns
	}()
	select {
	case ns := <-made:
		t.Cleanup(func() { _ = ns.Close() })
		return ns
	case err := <-failed:
		t.Fatal("new network namespace:", err)
		return 0
	}
}

// plugIn gives a namespace an interface on the bridge, and addresses.
func (l *LAN) plugIn(ns netns.NsHandle, name string) *Host {
	l.t.Helper()
	l.next++
	h := &Host{
		lan: l, ns: ns,
		IPv4: netip.AddrFrom4([4]byte{192, 168, 77 + l.subnet, l.next}),
		IPv6: netip.AddrFrom16([16]byte{0: 0xfd, 1: 0x77, 7: l.subnet, 15: l.next}),
	}
	veth := &netlink.Veth{LinkAttrs: netlink.NewLinkAttrs(), PeerName: name, PeerNamespace: netlink.NsFd(int(ns))}
	veth.Name, veth.MasterIndex = fmt.Sprintf("port%d", l.next), l.br
	if err := errors.Join(l.hub.LinkAdd(veth), l.hub.LinkSetUp(veth)); err != nil {
		l.t.Fatalf("veth %s: %v", veth.Name, err)
	}
	h.index = veth.Index
	inside, err := netlink.NewHandleAt(ns)
	if err != nil {
		l.t.Fatal("netlink:", err)
	}
	defer inside.Close()
	link, err := inside.LinkByName(name)
	if err != nil {
		l.t.Fatalf("interface %s: %v", name, err)
	}
	lo, err := inside.LinkByName("lo")
	if err != nil {
		l.t.Fatal("interface lo:", err)
	}
	err = h.Do(func() error {
		return os.WriteFile(filepath.Join("/proc/sys/net/ipv6/conf", name, "accept_dad"), []byte("0"), 0)
	})
	for _, prefix := range []netip.Prefix{netip.PrefixFrom(h.IPv4, 24), netip.PrefixFrom(h.IPv6, 64)} {
		address := &netlink.Addr{IPNet: &net.IPNet{IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen())}}
		if prefix.Addr().Is6() {
			address.Flags = unix.IFA_F_NODAD
		}
		err = errors.Join(err, inside.AddrAdd(link, address))
	}
	err = errors.Join(err, inside.LinkSetUp(lo), inside.LinkSetUp(link))
	if l.subnet == 0 {
		// Clients that choose no interface send multicast by the default route.
		_, everything, _ := net.ParseCIDR("0.0.0.0/0")
		err = errors.Join(err, inside.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: everything, Gw: net.IPv4(192, 168, 77, 254)}))
	}
	if err != nil {
		l.t.Fatalf("set up interface %s: %v", name, err)
	}
	l.awaitUp(l.hub, h.index)
	l.awaitUp(inside, link.Attrs().Index)
	await.That(l.t, "an IPv6 address of link scope on "+name, func() (bool, string) {
		addresses, err := inside.AddrList(link, netlink.FAMILY_V6)
		return slices.ContainsFunc(addresses, func(a netlink.Addr) bool {
			return a.IP.IsLinkLocalUnicast() && a.Flags&unix.IFA_F_TENTATIVE == 0
		}), fmt.Sprint(addresses, err)
	})
	return h
}

// awaitUp waits until an interface has its carrier, which the kernel notices within a
// second: the bridge forwards nothing before.
func (l *LAN) awaitUp(h *netlink.Handle, index int) {
	l.t.Helper()
	await.That(l.t, fmt.Sprintf("interface %d to be up", index), func() (bool, string) {
		link, err := h.LinkByIndex(index)
		return err == nil && link.Attrs().OperState == netlink.OperUp, fmt.Sprint(err)
	})
}

// Do runs fn on a thread that is in the host's namespace: sockets that fn opens
// itself, and processes that it starts, belong there for good. Those of
// goroutines that fn starts do not.
func (h *Host) Do(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends
		if err := netns.Set(h.ns); err != nil {
			done <- fmt.Errorf("enter network namespace: %w", err)
			return
		}
		done <- fn()
	}()
	return <-done
}

// Run runs a program in the host's namespace and returns what it prints.
func (h *Host) Run(cmd *exec.Cmd) (output []byte, err error) {
	err = h.Do(func() error {
		output, err = cmd.CombinedOutput()
		return err
	})
	return output, err
}

// Start starts a program in the host's namespace, and kills it when the test ends.
func (h *Host) Start(cmd *exec.Cmd) {
	h.lan.t.Helper()
	if err := h.Do(cmd.Start); err != nil {
		h.lan.t.Fatalf("start %s: %v", cmd.Path, err)
	}
	h.lan.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}

// SetConnected pulls the host's cable, or plugs it in again.
func (h *Host) SetConnected(connected bool) {
	h.lan.t.Helper()
	port, err := h.lan.hub.LinkByIndex(h.index)
	if err == nil && connected {
		err = h.lan.hub.LinkSetUp(port)
	} else if err == nil {
		err = h.lan.hub.LinkSetDown(port)
	}
	if err != nil {
		h.lan.t.Fatal("port of the bridge:", err)
	}
	if connected {
		h.lan.awaitUp(h.lan.hub, h.index)
	}
}
