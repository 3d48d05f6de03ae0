package mdns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// netInterface is a network interface to browse on.
type netInterface struct {
	index    int
	name     string
	prefixes []netip.Prefix
	v4, v6   bool // has a usable address of the family
}

// DefaultInterfaces are the interfaces that are used unless Handler.Interfaces says
// otherwise: all but those to pods, by the names that network plugins give them. What a
// pod announces is no device.
var DefaultInterfaces = []string{"!cali*", "!lxc*", "!veth*", "!azv*", "!gke*", "!eni*", "!nerdctl*", "!cilium_*", "!tunl*", "!kube-*", "!nodelocaldns"}

// maxInterfaces bounds the sockets on a node with a great many interfaces.
const maxInterfaces = 128

// interfaces returns the interfaces that are up, multicast, have an address and are
// selected. Not those that share another's network (ports of a bridge or bond), nor,
// unless a pattern selects them, veths with nothing but a link-local IPv6 address: these
// are the host's ends of pods' networks, whatever their names.
func interfaces(patterns []string) ([]netInterface, error) {
	links, err := dump(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list network interfaces: %w", err)
	}
	addresses, err := dump(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("list addresses of network interfaces: %w", err)
	}
	types := map[int]string{}
	for _, l := range links {
		types[l.Attrs().Index] = l.Type()
	}
	var all []netInterface
	for _, l := range links {
		a := l.Attrs()
		const want, refused = net.FlagUp | net.FlagRunning | net.FlagMulticast, net.FlagLoopback | net.FlagPointToPoint
		if flags := netFlags(a.RawFlags); flags&want != want || flags&refused != 0 {
			continue
		}
		if a.MasterIndex != 0 && types[a.MasterIndex] != "vrf" {
			continue
		}
		ok, named := selected(patterns, a.Name)
		if !ok || len(all) == maxInterfaces {
			continue
		}
		i := netInterface{index: a.Index, name: a.Name}
		onlyLinkLocal6 := true
		for _, address := range addresses {
			prefix, ok := toPrefix(address)
			if !ok || address.LinkIndex != a.Index {
				continue
			}
			i.prefixes = append(i.prefixes, prefix)
			i.v4 = i.v4 || prefix.Addr().Is4()
			i.v6 = i.v6 || prefix.Addr().Is6()
			onlyLinkLocal6 = onlyLinkLocal6 && prefix.Addr().Is6() && prefix.Addr().IsLinkLocalUnicast()
		}
		if len(i.prefixes) > 0 && (named || !onlyLinkLocal6 || l.Type() != "veth") {
			slices.SortFunc(i.prefixes, netip.Prefix.Compare)
			all = append(all, i)
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

func netFlags(raw uint32) (flags net.Flags) {
	for bit, flag := range map[uint32]net.Flags{
		unix.IFF_UP: net.FlagUp, unix.IFF_RUNNING: net.FlagRunning, unix.IFF_MULTICAST: net.FlagMulticast,
		unix.IFF_LOOPBACK: net.FlagLoopback, unix.IFF_POINTOPOINT: net.FlagPointToPoint,
	} {
		if raw&bit != 0 {
			flags |= flag
		}
	}
	return flags
}

// toPrefix is false for IPv6 addresses that cannot be sent from, as they are new or
// another host's.
func toPrefix(a netlink.Addr) (netip.Prefix, bool) {
	if a.IPNet == nil || a.Flags&(unix.IFA_F_TENTATIVE|unix.IFA_F_DADFAILED) != 0 {
		return netip.Prefix{}, false
	}
	ip, ok := netip.AddrFromSlice(a.IP)
	ones, _ := a.Mask.Size()
	return netip.PrefixFrom(ip.Unmap(), ones), ok
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

// watchInterfaces calls changed when links or addresses have changed, until ctx ends or
// it fails.
func watchInterfaces(ctx context.Context, changed func()) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open route netlink socket: %w", err)
	}
	file := os.NewFile(uintptr(fd), "rtnetlink")
	stop := context.AfterFunc(ctx, func() { _ = file.Close() })
	defer func() {
		if stop() {
			_ = file.Close()
		}
	}()
	groups := uint32(unix.RTMGRP_LINK | unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV6_IFADDR)
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}); err != nil {
		return fmt.Errorf("bind route netlink socket: %w", err)
	}
	buffer := make([]byte, 64<<10)
	for {
		changed() // first for what changed before the socket was there
		// The message itself does not matter: everything is listed anew. So messages may
		// get lost, which is ENOBUFS.
		if _, err := file.Read(buffer); err != nil && !errors.Is(err, unix.ENOBUFS) {
			return fmt.Errorf("read route netlink socket: %w", err)
		}
	}
}
