// Package netif lists the network interfaces of a node on which handlers look for devices
// with multicast, and reports when they change.
package netif

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Default are the patterns for List unless the user gives others: all interfaces but
// those to pods, by the names that network plugins give them. What a pod announces is no
// device.
var Default = []string{"!cali*", "!lxc*", "!veth*", "!azv*", "!gke*", "!eni*", "!nerdctl*", "!cilium_*", "!tunl*", "!kube-*", "!nodelocaldns"}

// None says why nothing is found where List returns no interface.
const None = "no network interface of this node is up, has a carrier, multicasts, has an address and is selected: " +
	"no device can be heard"

// maxInterfaces bounds the sockets on a node with a great many interfaces.
const maxInterfaces = 128

// Interface is a network interface with addresses that can be sent from.
type Interface struct {
	Index    int
	Name     string
	Prefixes []netip.Prefix // at least one; in the kernel's order: primary addresses first
}

// List returns the interfaces that are up, have a carrier, can multicast, have an address
// and are selected, at most 128. Patterns are globs of names; "!" before one leaves
// interfaces out, and the last that matches counts. Default when nil; all interfaces when
// empty. A malformed pattern is an error: it may be to leave out what nobody trusts.
//
// Loopback and point-to-point interfaces and ports of bridges and bonds are never listed.
// Veths with nothing but a link-local IPv6 address are the host's ends of pods' networks,
// whatever their names: they are listed only if a pattern without "!" matches.
func List(patterns []string) ([]Interface, error) {
	if patterns == nil {
		patterns = Default
	}
	for _, pattern := range patterns {
		if _, err := path.Match(strings.TrimPrefix(pattern, "!"), ""); err != nil {
			return nil, fmt.Errorf("network interfaces %q: %w", pattern, err)
		}
	}
	links, err := dump(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list network interfaces: %w", err)
	}
	addresses, err := dump(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("list addresses of network interfaces: %w", err)
	}
	vrfs := map[int]bool{}
	for _, l := range links {
		vrfs[l.Attrs().Index] = l.Type() == "vrf"
	}
	var all []Interface
	for _, l := range links {
		a := l.Attrs()
		const want, refused = net.FlagUp | net.FlagRunning | net.FlagMulticast, net.FlagLoopback | net.FlagPointToPoint
		ok, named := selected(patterns, a.Name)
		if !ok || a.Flags&(want|refused) != want || a.MasterIndex != 0 && !vrfs[a.MasterIndex] {
			continue
		}
		i := Interface{Index: a.Index, Name: a.Name}
		for _, address := range addresses {
			if prefix, ok := usable(address); ok && address.LinkIndex == a.Index {
				i.Prefixes = append(i.Prefixes, prefix)
			}
		}
		if len(i.Prefixes) == 0 || l.Type() == "veth" && !named && !slices.ContainsFunc(i.Prefixes, beyondLinkLocal6) {
			continue
		}
		if all = append(all, i); len(all) == maxInterfaces {
			break
		}
	}
	return all, nil
}

// dump lists again when the kernel says that the list changed in the meantime.
func dump[T any](list func() ([]T, error)) (all []T, err error) {
	for range 3 {
		if all, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return all, err
}

// selected is whether the last pattern that matches a name has no "!". Names that no
// pattern matches are selected if no pattern selects any; named is false then.
func selected(patterns []string, name string) (ok, named bool) {
	for _, pattern := range slices.Backward(patterns) {
		glob, not := strings.CutPrefix(pattern, "!")
		if matched, _ := path.Match(glob, name); matched {
			return !not, !not
		}
	}
	return !slices.ContainsFunc(patterns, func(p string) bool { return !strings.HasPrefix(p, "!") }), false
}

// usable is false for IPv6 addresses that cannot be sent from: the kernel still checks
// whether another host has them, or another host has.
func usable(a netlink.Addr) (netip.Prefix, bool) {
	if a.IPNet == nil || a.Flags&(unix.IFA_F_TENTATIVE|unix.IFA_F_DADFAILED) != 0 {
		return netip.Prefix{}, false
	}
	ip, ok := netip.AddrFromSlice(a.IP)
	ones, _ := a.Mask.Size()
	return netip.PrefixFrom(ip.Unmap(), ones), ok
}

func beyondLinkLocal6(p netip.Prefix) bool {
	return p.Addr().Is4() || !p.Addr().IsLinkLocalUnicast()
}
