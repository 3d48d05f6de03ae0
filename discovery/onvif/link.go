package onvif

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"

	"github.com/kubeslot/kubeslot/discovery/netif"
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
	unicast, group *net.UDPConn
	to             *net.UDPAddr
}

func (l *link) close() {
	_ = l.unicast.Close()
	_ = l.group.Close()
}

// send sends to all devices on the link.
func (l *link) send(message []byte) error {
	_, err := l.unicast.WriteToUDP(message, l.to)
	return err
}

// endpoints returns interfaces with the addresses to send multicast from: one of each
// subnet of IPv4, since a camera may have no route to another one, and a link-local IPv6 one.
func endpoints(interfaces []netif.Interface) (all []endpointAddress) {
	for _, i := range interfaces {
		var subnets []netip.Prefix
		for _, p := range i.Prefixes {
			a := p.Addr()
			if a.Is6() && !a.IsLinkLocalUnicast() || len(all) == maxLinks ||
				p.IsSingleIP() && len(subnets) > 0 || // such as a virtual IP of a cluster
				slices.ContainsFunc(subnets, func(subnet netip.Prefix) bool { return subnet.Contains(a) }) {
				continue
			}
			subnets = append(subnets, p)
			all = append(all, endpointAddress{i.Index, i.Name, a})
		}
	}
	return all
}

func openLink(e endpointAddress) (l *link, err error) {
	l = &link{endpointAddress: e}
	network, group, zone := "udp4", groupIPv4, ""
	if e.address.Is6() {
		network, group, zone = "udp6", groupIPv6, e.zone()
	}
	l.to = &net.UDPAddr{IP: group.AsSlice(), Port: discoveryPort, Zone: zone}
	if l.group, err = netif.ListenMulticast(e.index, netip.AddrPortFrom(group, discoveryPort)); err != nil {
		return nil, err
	}
	l.unicast, err = net.ListenUDP(network, &net.UDPAddr{IP: e.address.AsSlice(), Zone: zone})
	if err != nil {
		l.group.Close()
		return nil, err
	}
	i := &net.Interface{Index: e.index, Name: e.name}
	if e.address.Is6() {
		err = ipv6.NewPacketConn(l.unicast).SetMulticastInterface(i)
	} else {
		err = ipv4.NewPacketConn(l.unicast).SetMulticastInterface(i)
	}
	if err != nil {
		l.close()
		return nil, fmt.Errorf("send to %s: %w", group, err)
	}
	return l, nil
}
