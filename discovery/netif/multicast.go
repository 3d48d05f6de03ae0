package netif

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// ListenMulticast opens a socket for one interface and multicast group, whose port it
// shares with other programs. It is bound to the group, which package net does not do:
// packets for the unicast address, which it would take from another program on the node,
// do not reach it.
func ListenMulticast(index int, group netip.AddrPort) (*net.UDPConn, error) {
	family, setUp, what := unix.AF_INET, setUp4, "IPv4"
	if group.Addr().Is6() {
		family, setUp, what = unix.AF_INET6, setUp6, "IPv6"
	}
	fail := func(call string, err error) (*net.UDPConn, error) {
		return nil, fmt.Errorf("open %s socket of port %d: %s: %w", what, group.Port(), call, err)
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_UDP)
	if err != nil {
		return fail("socket", err)
	}
	file := os.NewFile(uintptr(fd), "multicast")
	defer file.Close() // conn has a descriptor of its own
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return fail("SO_REUSEADDR", err)
	}
	if err := setUp(fd, index, group); err != nil {
		return fail("set up", err)
	}
	conn, err := net.FilePacketConn(file)
	if err != nil {
		return fail("use", err)
	}
	return conn.(*net.UDPConn), nil
}

func setUp4(fd, index int, group netip.AddrPort) error {
	request := &unix.IPMreqn{Multiaddr: group.Addr().As4(), Ifindex: int32(index)}
	return errors.Join(
		unix.Bind(fd, &unix.SockaddrInet4{Port: int(group.Port()), Addr: group.Addr().As4()}),
		// Only what comes in at this interface.
		unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MULTICAST_ALL, 0),
		unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_ADD_MEMBERSHIP, request),
		unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_MULTICAST_IF, request),
		unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MULTICAST_TTL, 255),
		unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MULTICAST_LOOP, 1), // for programs on this node
	)
}

func setUp6(fd, index int, group netip.AddrPort) error {
	return errors.Join(
		unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1),
		unix.Bind(fd, &unix.SockaddrInet6{Port: int(group.Port()), Addr: group.Addr().As16(), ZoneId: uint32(index)}),
		unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_ALL, 0),
		unix.SetsockoptIPv6Mreq(fd, unix.IPPROTO_IPV6, unix.IPV6_ADD_MEMBERSHIP,
			&unix.IPv6Mreq{Multiaddr: group.Addr().As16(), Interface: uint32(index)}),
		unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_IF, index),
		unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_HOPS, 255),
		unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_LOOP, 1),
	)
}
