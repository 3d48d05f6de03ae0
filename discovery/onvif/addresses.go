package onvif

import (
	"context"
	"net"
	"net/netip"

	"github.com/kubeslot/kubeslot/discovery/netif"
)

type targetKey struct{}

// dialer connects to a target's address, which a stranger chose.
type dialer struct {
	allowed func(netip.Addr) error // safe for concurrent use
}

func (d dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	t, _ := ctx.Value(targetKey{}).(target)
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if a, err := netip.ParseAddr(host); err == nil && a.Is6() && a.IsLinkLocalUnicast() {
		address = net.JoinHostPort(a.WithZone(t.zone).String(), port)
	}
	tcp := net.Dialer{Timeout: requestTimeout, ControlContext: netif.Allow(d.allowed)}
	conn, err := tcp.DialContext(ctx, network, address)
	if err != nil || !isPlain(t.xaddr) { // the status line is in TLS
		return conn, err
	}
	return withoutEcho(conn), nil
}
