package onvif

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"
)

const (
	discoveryPort = 3702 // WS-Discovery 2.4

	// maxLinks bounds the sockets on a node with a great many interfaces.
	maxLinks = 128
)

var (
	groupIPv4 = netip.MustParseAddr("239.255.255.250")
	groupIPv6 = netip.MustParseAddr("ff02::c")
)

// DefaultInterfaces are the interfaces that are used unless Handler.Interfaces says
// otherwise: all but those to pods, by the names that network plugins give them.
var DefaultInterfaces = []string{"!cali*", "!lxc*", "!veth*", "!azv*", "!gke*", "!eni*", "!nerdctl*", "!cilium_*", "!tunl*", "!kube-*", "!nodelocaldns"}

// endpointAddress is an interface with an address to send from. It tells whether a link
// is still the same.
type endpointAddress struct {
	index   int
	name    string
	address netip.Addr
}

// zone is the interface's index: package net remembers the index of a name for a
// minute, in which an interface may be replaced.
func (e endpointAddress) zone() string { return strconv.Itoa(e.index) }

// link is an interface and a version of IP, with two sockets: WS-Discovery's answers
// come to the port that asked, Hello and Bye to the group.
type link struct {
	endpointAddress
	unicast, group net.PacketConn
	to             net.Addr
}

func (l *link) close() {
	_ = l.unicast.Close()
	_ = l.group.Close()
}

// send sends to all devices on the link.
func (l *link) send(message []byte) error {
	_, err := l.unicast.WriteTo(message, l.to)
	return err
}

// listEndpoints returns the interfaces to use, with one address of each IP version.
func listEndpoints(patterns []string) ([]endpointAddress, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list network interfaces: %w", err)
	}
	addresses, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("list addresses of network interfaces: %w", err)
	}
	vrfs := map[int]bool{}
	for _, l := range links {
		vrfs[l.Attrs().Index] = l.Type() == "vrf"
	}
	var endpoints []endpointAddress
	for _, l := range links {
		a := l.Attrs()
		const want = net.FlagUp | net.FlagMulticast
		switch {
		case a.Flags&want != want || a.Flags&net.FlagLoopback != 0:
			continue
		case a.MasterIndex != 0 && !vrfs[a.MasterIndex]:
			continue // a port of a bridge or a bond, which is an interface itself
		case !selected(patterns, a.Name):
			continue
		case l.Type() == "veth" && onlyLinkLocal(addresses, a.Index):
			continue // the host's end of a pod's network, whatever its name
		}
		for _, ipv6 := range []bool{false, true} {
			if address, ok := sourceAddress(addresses, a.Index, ipv6); ok && len(endpoints) < maxLinks {
				endpoints = append(endpoints, endpointAddress{a.Index, a.Name, address})
			}
		}
	}
	return endpoints, nil
}

// selected is whether the last pattern that matches a name has no "!". Names that no
// pattern matches are selected if no pattern selects any.
func selected(patterns []string, name string) bool {
	selects := slices.ContainsFunc(patterns, func(p string) bool { return !strings.HasPrefix(p, "!") })
	for _, pattern := range slices.Backward(patterns) {
		glob, not := strings.CutPrefix(pattern, "!")
		if ok, _ := filepath.Match(glob, name); ok {
			return !not
		}
	}
	return !selects
}

// sourceAddress returns the address of an interface to send multicast from: the first
// IPv4 one, or the link-local IPv6 one.
func sourceAddress(addresses []netlink.Addr, index int, ipv6 bool) (netip.Addr, bool) {
	for _, a := range addresses {
		address, ok := netip.AddrFromSlice(a.IP)
		address = address.Unmap()
		if !ok || a.LinkIndex != index || address.Is6() != ipv6 || a.Flags&(unix.IFA_F_TENTATIVE|unix.IFA_F_DADFAILED) != 0 {
			continue
		}
		if !ipv6 || address.IsLinkLocalUnicast() {
			return address, true
		}
	}
	return netip.Addr{}, false
}

func onlyLinkLocal(addresses []netlink.Addr, index int) bool {
	return !slices.ContainsFunc(addresses, func(a netlink.Addr) bool {
		return a.LinkIndex == index && !a.IP.IsLinkLocalUnicast()
	})
}

func openLink(e endpointAddress) (l *link, err error) {
	l = &link{endpointAddress: e}
	i := &net.Interface{Index: e.index, Name: e.name}
	network, group, zone := "udp4", groupIPv4, ""
	if e.address.Is6() {
		network, group, zone = "udp6", groupIPv6, e.zone()
	}
	// Bound to the group, not to any address: messages to this host alone are for
	// others that use the port, such as Samba's wsdd.
	if l.group, err = listen(network, group.WithZone(zone), discoveryPort); err != nil {
		return nil, err
	}
	if l.unicast, err = listen(network, e.address.WithZone(zone), 0); err != nil {
		l.group.Close()
		return nil, err
	}
	to := &net.UDPAddr{IP: group.AsSlice(), Port: discoveryPort, Zone: zone}
	l.to = to
	if e.address.Is6() {
		err = errors.Join(ipv6.NewPacketConn(l.group).JoinGroup(i, to), ipv6.NewPacketConn(l.unicast).SetMulticastInterface(i))
	} else {
		err = errors.Join(ipv4.NewPacketConn(l.group).JoinGroup(i, to), ipv4.NewPacketConn(l.unicast).SetMulticastInterface(i))
	}
	if err != nil {
		l.close()
		return nil, fmt.Errorf("join %s: %w", group, err)
	}
	return l, nil
}

// listen shares its port with other programs that use WS-Discovery.
func listen(network string, address netip.Addr, port int) (net.PacketConn, error) {
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		controlErr := raw.Control(func(fd uintptr) {
			if port != 0 {
				err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
			}
			if network == "udp4" { // only from the interface on which the group is joined
				err = errors.Join(err, unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MULTICAST_ALL, 0))
			}
		})
		return errors.Join(controlErr, err)
	}}
	return config.ListenPacket(context.Background(), network, net.JoinHostPort(address.String(), strconv.Itoa(port)))
}

// watchAddresses calls changed when addresses of this machine come and go, until ctx
// ends.
func watchAddresses(ctx context.Context, changed func()) error {
	updates := make(chan netlink.AddrUpdate)
	if err := netlink.AddrSubscribe(updates, ctx.Done()); err != nil {
		return fmt.Errorf("watch addresses of network interfaces: %w", err)
	}
	go func() { // until the library closes the channel, after ctx has ended
		for range updates {
			changed()
		}
	}()
	return nil
}
