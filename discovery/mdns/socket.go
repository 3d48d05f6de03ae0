package mdns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"
)

const (
	port = 5353 // of multicast DNS: responses must come from it (RFC 6762 6)

	// maxPacketsPerSecond bounds what a flood costs us on one socket: the kernel drops
	// what is beyond.
	maxPacketsPerSecond = 1000
)

var (
	group4 = netip.AddrPortFrom(netip.AddrFrom4([4]byte{224, 0, 0, 251}), port)
	group6 = netip.AddrPortFrom(netip.MustParseAddr("ff02::fb"), port)
)

// socket is a socket for one interface and address family. It is bound to the group, not
// to all addresses: packets for the unicast address, which it would take from another
// responder on the node, do not reach it.
type socket struct {
	conn   *net.UDPConn
	group  netip.AddrPort
	failed atomic.Bool // nobody reads any more
}

// openSocket opens a socket on an interface. The port is shared with avahi and others.
func openSocket(index int, v6 bool) (*socket, error) {
	family, group, what := unix.AF_INET, group4, "IPv4"
	if v6 {
		family, group, what = unix.AF_INET6, group6, "IPv6"
	}
	fail := func(call string, err error) (*socket, error) {
		return nil, fmt.Errorf("open %s socket of port %d: %s: %w", what, port, call, err)
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_UDP)
	if err != nil {
		return fail("socket", err)
	}
	file := os.NewFile(uintptr(fd), "mdns")
	defer file.Close() // conn has a descriptor of its own
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return fail("SO_REUSEADDR", err)
	}
	if v6 {
		err = setup6(fd, index)
	} else {
		err = setup4(fd, index)
	}
	if err != nil {
		return fail("set up", err)
	}
	conn, err := net.FilePacketConn(file)
	if err != nil {
		return fail("use", err)
	}
	return &socket{conn: conn.(*net.UDPConn), group: group}, nil
}

func setup4(fd, index int) error {
	request := &unix.IPMreqn{Multiaddr: group4.Addr().As4(), Ifindex: int32(index)}
	return errors.Join(
		unix.Bind(fd, &unix.SockaddrInet4{Port: port, Addr: group4.Addr().As4()}),
		// Only what comes in at this interface.
		unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MULTICAST_ALL, 0),
		unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_ADD_MEMBERSHIP, request),
		unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_MULTICAST_IF, request),
		unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MULTICAST_TTL, 255),
		unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MULTICAST_LOOP, 1), // for responders on this node
	)
}

func setup6(fd, index int) error {
	return errors.Join(
		unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1),
		unix.Bind(fd, &unix.SockaddrInet6{Port: port, Addr: group6.Addr().As16(), ZoneId: uint32(index)}),
		unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_ALL, 0),
		unix.SetsockoptIPv6Mreq(fd, unix.IPPROTO_IPV6, unix.IPV6_ADD_MEMBERSHIP,
			&unix.IPv6Mreq{Multiaddr: group6.Addr().As16(), Interface: uint32(index)}),
		unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_IF, index),
		unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_HOPS, 255),
		unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_LOOP, 1),
	)
}

// send sends a packet to the group. It does not block.
func (s *socket) send(packet []byte) error {
	_, err := s.conn.WriteToUDPAddrPort(packet, s.group)
	return err
}

func (s *socket) close() { _ = s.conn.Close() }

// read calls receive with the records of each response until the socket is closed or
// fails, or ctx ends.
func (s *socket) read(ctx context.Context, receive func([]record)) error {
	buffer := make([]byte, maxPacketBytes+1)
	limit := rate.NewLimiter(maxPacketsPerSecond, maxPacketsPerSecond)
	for {
		if err := limit.Wait(ctx); err != nil {
			return err
		}
		n, from, err := s.conn.ReadFromUDPAddrPort(buffer)
		if err != nil {
			return err
		}
		if n > maxPacketBytes || from.Port() != port {
			continue
		}
		if records, err := parseResponse(buffer[:n]); err == nil && len(records) > 0 {
			receive(records)
		}
	}
}
