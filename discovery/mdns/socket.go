package mdns

import (
	"context"
	"net"
	"net/netip"
	"sync/atomic"

	"golang.org/x/time/rate"

	"github.com/kubeslot/kubeslot/discovery/netif"
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

// socket is a socket for one interface and address family.
type socket struct {
	conn   *net.UDPConn
	group  netip.AddrPort
	failed atomic.Bool // nobody reads any more
}

func openSocket(index int, v6 bool) (*socket, error) {
	group := group4
	if v6 {
		group = group6
	}
	conn, err := netif.ListenMulticast(index, group)
	return &socket{conn: conn, group: group}, err
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
