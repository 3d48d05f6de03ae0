package onvifcamera

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"
)

// The address and the groups of WS-Discovery, 2.4.
const discoveryPort = 3702

var (
	groupIPv4 = netip.MustParseAddr("239.255.255.250")
	groupIPv6 = netip.MustParseAddr("ff02::c")
)

// link is one interface and one version of IP.
type link struct {
	name      string
	mac       net.HardwareAddr
	addresses []netip.Addr // of this version; those that are not link-local first

	group net.PacketConn // receives what is sent to the group
	own   net.PacketConn // sends, and receives what is sent to the camera alone
	to    net.Addr       // the group
}

func (l *link) close() {
	_ = l.group.Close()
	_ = l.own.Close()
}

// openLinks opens the interface with a name, or all that are up and have multicast.
func openLinks(name string) ([]*link, error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	const want = net.FlagUp | net.FlagMulticast
	var links []*link
	for _, i := range interfaces {
		if i.Flags&want != want || i.Flags&net.FlagLoopback != 0 || name != "" && i.Name != name {
			continue
		}
		opened, err := openInterface(i)
		links = append(links, opened...)
		if err != nil {
			for _, l := range links {
				l.close()
			}
			return nil, fmt.Errorf("interface %s: %w", i.Name, err)
		}
	}
	if len(links) == 0 {
		return nil, fmt.Errorf("no interface %s that is up, has multicast and an address", name)
	}
	return links, nil
}

func openInterface(i net.Interface) (links []*link, err error) {
	prefixes, err := i.Addrs()
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	var four, six, local []netip.Addr
	for _, p := range prefixes {
		prefix, err := netip.ParsePrefix(p.String())
		if err != nil {
			return nil, fmt.Errorf("address %s: %w", p, err)
		}
		switch a := prefix.Addr(); {
		case a.Is4():
			four = append(four, a)
		case a.IsLinkLocalUnicast():
			local = append(local, a)
		default:
			six = append(six, a)
		}
	}
	if len(four) > 0 {
		l, err := openIPv4(i, four)
		if err != nil {
			return links, fmt.Errorf("IPv4: %w", err)
		}
		links = append(links, l)
	}
	if len(local) > 0 { // multicast of link scope is sent from it
		l, err := openIPv6(i, append(six, local...))
		if err != nil {
			return links, fmt.Errorf("IPv6: %w", err)
		}
		links = append(links, l)
	}
	return links, nil
}

func openIPv4(i net.Interface, addresses []netip.Addr) (*link, error) {
	group, err := listen("udp4", netip.AddrPortFrom(groupIPv4, discoveryPort).String())
	if err != nil {
		return nil, err
	}
	own, err := listen("udp4", netip.AddrPortFrom(addresses[0], discoveryPort).String())
	if err != nil {
		group.Close()
		return nil, err
	}
	to := &net.UDPAddr{IP: groupIPv4.AsSlice(), Port: discoveryPort}
	err = errors.Join(
		ipv4.NewPacketConn(group).JoinGroup(&i, to),
		ipv4.NewPacketConn(own).SetMulticastInterface(&i))
	if err != nil {
		group.Close()
		own.Close()
		return nil, fmt.Errorf("join %s: %w", groupIPv4, err)
	}
	return &link{name: i.Name, mac: i.HardwareAddr, addresses: addresses, group: group, own: own, to: to}, nil
}

func openIPv6(i net.Interface, addresses []netip.Addr) (*link, error) {
	port := strconv.Itoa(discoveryPort)
	// Not the name: package net remembers a name's index for a minute, and for all
	// network namespaces.
	zone := strconv.Itoa(i.Index)
	group, err := listen("udp6", net.JoinHostPort(groupIPv6.WithZone(zone).String(), port))
	if err != nil {
		return nil, err
	}
	local := addresses[len(addresses)-1].WithZone(zone)
	own, err := listen("udp6", net.JoinHostPort(local.String(), port))
	for deadline := time.Now().Add(time.Minute); errors.Is(err, unix.EADDRNOTAVAIL) && time.Now().Before(deadline); {
		time.Sleep(50 * time.Millisecond) // the kernel still looks for others with the address
		own, err = listen("udp6", net.JoinHostPort(local.String(), port))
	}
	if err != nil {
		group.Close()
		return nil, err
	}
	to := &net.UDPAddr{IP: groupIPv6.AsSlice(), Port: discoveryPort, Zone: zone}
	err = errors.Join(
		ipv6.NewPacketConn(group).JoinGroup(&i, to),
		ipv6.NewPacketConn(own).SetMulticastInterface(&i))
	if err != nil {
		group.Close()
		own.Close()
		return nil, fmt.Errorf("join %s: %w", groupIPv6, err)
	}
	return &link{name: i.Name, mac: i.HardwareAddr, addresses: addresses, group: group, own: own, to: to}, nil
}

// listen shares the port with others, as WS-Discovery's is.
func listen(network, address string) (net.PacketConn, error) {
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		controlErr := raw.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
			if err == nil && network == "udp4" {
				// Only what comes by the interface that this socket joins the group on.
				err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MULTICAST_ALL, 0)
			}
		})
		return errors.Join(controlErr, err)
	}}
	return config.ListenPacket(context.Background(), network, address)
}
