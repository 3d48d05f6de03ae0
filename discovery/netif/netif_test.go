package netif

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/kubeslot/kubeslot/test/await"
	"github.com/kubeslot/kubeslot/test/onvifcamera/lan"
)

func TestMain(m *testing.M) { lan.Main(m) }

// Real interfaces, of every kind that this kernel has.
func TestList(t *testing.T) {
	lan.New(t) // skips without a network namespace; eth0, 192.168.77.1/24 and fd77::1/64
	for name, addresses := range map[string][]string{
		"eth1":    {"10.8.0.9/24", "10.8.0.1/24", "fd08::1/64"},
		"br0":     {"10.6.0.1/24"},
		"port0":   {"10.9.0.1/24"}, // a port of the bridge
		"pod0":    nil,             // a pod's: link-local IPv6 only
		"veth7":   {"10.10.0.1/24"},
		"ll0":     {"169.254.1.1/16"}, // a network without DHCP
		"down0":   {"10.11.0.1/24"},   // not up
		"nocable": {"10.12.0.1/24"},   // its other end is down
	} {
		add(t, name, addresses...)
	}
	lo := byName(t, "lo")
	t.Cleanup(func() { _ = netlink.LinkSetMulticastOff(lo) })
	if err := errors.Join(netlink.LinkSetMulticastOn(lo), netlink.LinkSetMaster(byName(t, "port0"), byName(t, "br0")),
		netlink.LinkSetDown(byName(t, "down0")), netlink.LinkSetDown(byName(t, "x-nocable"))); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"eth0", "eth1", "br0", "port0", "pod0", "veth7", "ll0", "nocable"} {
		await.That(t, "interface "+name, func() (bool, string) {
			carrier, address := state(t, name)
			is := fmt.Sprintf("carrier %v, link-local address %v", carrier, address)
			return carrier != (name == "nocable") && (!carrier || address), is
		})
	}
	const eth0, eth1, br0, ll0, veth7 = "eth0[192.168.77.1/24 fd77::1/64]", "eth1[10.8.0.9/24 10.8.0.1/24 fd08::1/64]", "br0[10.6.0.1/24]", "ll0[169.254.1.1/16]", "veth7[10.10.0.1/24]"
	for _, tc := range []struct{ patterns, want []string }{
		{nil, []string{br0, eth0, eth1, ll0}},
		{[]string{}, []string{br0, eth0, eth1, ll0, veth7}},
		{[]string{"eth*"}, []string{eth0, eth1}},
		{[]string{"eth1", "ll?"}, []string{eth1, ll0}},
		{[]string{"!eth1", "!veth7"}, []string{br0, eth0, ll0}},
		{[]string{"!eth*", "eth0"}, []string{eth0}},
		{[]string{"pod*"}, []string{"pod0[]"}}, // asked for
		{[]string{"none", "lo", "port0", "down0", "nocable"}, nil},
	} {
		all, err := List(tc.patterns)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, i := range all {
			var prefixes []string
			for _, p := range i.Prefixes {
				if beyondLinkLocal6(p) {
					prefixes = append(prefixes, p.String())
				}
			}
			got = append(got, i.Name+fmt.Sprint(prefixes))
			if len(prefixes) == len(i.Prefixes) || i.Index != byName(t, i.Name).Attrs().Index {
				t.Errorf("List(%q) has %+v: want a link-local IPv6 address, and its index", tc.patterns, i)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, tc.want) {
			t.Errorf("List(%q) = %q, want %q", tc.patterns, got, tc.want)
		}
	}
}

// A pattern that cannot match would have the handlers look where they are not to.
func TestMalformedPatterns(t *testing.T) {
	for _, pattern := range []string{"[", "!eth[1"} {
		all, err := List([]string{"eth0", pattern})
		if !errors.Is(err, path.ErrBadPattern) || !strings.Contains(err.Error(), pattern) {
			t.Errorf("List(%q) = %v, %v, want an error of the pattern", pattern, all, err)
		}
	}
}

func TestSelected(t *testing.T) {
	for _, tc := range []struct {
		patterns  []string
		name      string
		ok, named bool
	}{
		{nil, "eth0", true, false},
		{Default, "eth0", true, false}, {Default, "br0", true, false}, {Default, "cali123", false, false}, {Default, "veth1", false, false},
		{[]string{"eth*"}, "eth1", true, true}, {[]string{"eth*"}, "wlan0", false, false},
		{[]string{"eth*", "!eth1"}, "eth1", false, false}, {[]string{"!eth1", "eth*"}, "eth1", true, true}, {[]string{"eth*", "!eth1"}, "eth0", true, true},
	} {
		if ok, named := selected(tc.patterns, tc.name); ok != tc.ok || named != tc.named {
			t.Errorf("selected(%q, %s) = %v, %v, want %v, %v", tc.patterns, tc.name, ok, named, tc.ok, tc.named)
		}
	}
}

func TestUsable(t *testing.T) {
	_, prefix, _ := net.ParseCIDR("fd08::/64")
	for flags, want := range map[int]bool{0: true, unix.IFA_F_TENTATIVE: false, unix.IFA_F_DADFAILED: false} {
		got, ok := usable(netlink.Addr{IPNet: prefix, Flags: flags})
		if ok != want || ok && got != netip.MustParsePrefix("fd08::/64") {
			t.Errorf("usable with flags %#x = %v, %v, want %v", flags, got, ok, want)
		}
	}
}

// Each kind of change is told, and Watch ends with its context.
func TestWatch(t *testing.T) {
	lan.New(t)
	lo := byName(t, "lo")
	ctx, cancel := context.WithCancel(t.Context())
	changes, ended := make(chan struct{}, 1), make(chan error, 1)
	go func() {
		ended <- Watch(ctx, func() {
			select {
			case changes <- struct{}{}:
			default:
			}
		})
	}()
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"what there was", func() error { return nil }},
		{"an IPv4 address", func() error { return netlink.AddrAdd(lo, address(t, "10.9.9.9/32")) }},
		{"an IPv6 address", func() error { return netlink.AddrAdd(lo, address(t, "fd09::1/128")) }},
		{"an IPv4 address that goes", func() error { return netlink.AddrDel(lo, address(t, "10.9.9.9/32")) }},
		{"an IPv6 address that goes", func() error { return netlink.AddrDel(lo, address(t, "fd09::1/128")) }},
		{"a link", func() error { return netlink.LinkSetMulticastOn(lo) }},
		{"the link again", func() error { return netlink.LinkSetMulticastOff(lo) }},
	} {
		if err := step.do(); err != nil {
			t.Fatalf("change %s: %v", step.what, err)
		}
		select {
		case <-changes:
		case err := <-ended:
			t.Fatalf("Watch ended: %v", err)
		case <-time.After(30 * time.Second):
			t.Fatalf("waited 30 s in vain for a call after %s", step.what)
		}
		for quiet := false; !quiet; { // one change makes several calls, and eth0 is still new
			select {
			case <-changes:
			case <-time.After(200 * time.Millisecond):
				quiet = true
			}
		}
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Watch = %v, want its context's error", err)
	}
}

// add adds a bridge if the name is br0, else a veth whose other end is x-name.
func add(t *testing.T, name string, addresses ...string) {
	t.Helper()
	attributes := netlink.NewLinkAttrs()
	attributes.Name = name
	var link netlink.Link = &netlink.Veth{LinkAttrs: attributes, PeerName: "x-" + name}
	if name == "br0" {
		link = &netlink.Bridge{LinkAttrs: attributes}
	}
	err := errors.Join(netlink.LinkAdd(link), netlink.LinkSetUp(link))
	t.Cleanup(func() { _ = netlink.LinkDel(link) })
	if name != "br0" {
		err = errors.Join(err, netlink.LinkSetUp(byName(t, "x-"+name)))
	}
	for _, text := range addresses {
		err = errors.Join(err, netlink.AddrAdd(link, address(t, text)))
	}
	if err != nil {
		t.Fatalf("add %s: %v", name, err)
	}
}

// address can be used at once.
func address(t *testing.T, text string) *netlink.Addr {
	t.Helper()
	a, err := netlink.ParseAddr(text)
	if err != nil {
		t.Fatal(err)
	}
	a.Flags = unix.IFA_F_NODAD
	return a
}

func byName(t *testing.T, name string) netlink.Link {
	t.Helper()
	link, err := netlink.LinkByName(name)
	if err != nil {
		t.Fatalf("interface %s: %v", name, err)
	}
	return link
}

// state is whether an interface has a carrier, and a link-local IPv6 address that can be
// used. The kernel takes a second or two for both.
func state(t *testing.T, name string) (carrier, linkLocal bool) {
	t.Helper()
	link := byName(t, name)
	addresses, err := netlink.AddrList(link, netlink.FAMILY_V6)
	if err != nil {
		t.Fatal(err)
	}
	return link.Attrs().RawFlags&unix.IFF_RUNNING != 0, slices.ContainsFunc(addresses, func(a netlink.Addr) bool {
		return a.IP.IsLinkLocalUnicast() && a.Flags&unix.IFA_F_TENTATIVE == 0
	})
}
