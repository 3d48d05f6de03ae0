package onvif

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
)

type targetKey struct{}

// dialer connects to a target's address, which a stranger chose.
type dialer struct {
	allowed func(netip.Addr) error // safe for concurrent use
}

// dial asks allowed of each address that a name stands for.
func (d dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	t, _ := ctx.Value(targetKey{}).(target)
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if a, err := netip.ParseAddr(host); err == nil && a.Is6() && a.IsLinkLocalUnicast() {
		address = net.JoinHostPort(a.WithZone(t.zone).String(), port)
	}
	check := func(_ context.Context, _, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		if err != nil {
			return err
		}
		return d.allowed(to.Addr())
	}
	tcp := net.Dialer{Timeout: requestTimeout, ControlContext: check}
	conn, err := tcp.DialContext(ctx, network, address)
	if err != nil || !isPlain(t.xaddr) { // the status line is in TLS
		return conn, err
	}
	return withoutEcho(conn), nil
}

// metadataServices are the addresses at which clouds give credentials to whoever asks from
// a node. Other link-local addresses are allowed: a camera without DHCP has one.
var metadataServices = []netip.Addr{
	netip.MustParseAddr("169.254.169.254"), // AWS, Azure, Google Cloud, OpenStack and most others
	netip.MustParseAddr("fe80::a9fe:a9fe"), // OpenStack
	netip.MustParseAddr("fd00:ec2::254"),   // AWS
	netip.MustParseAddr("169.254.170.2"),   // AWS ECS
	netip.MustParseAddr("169.254.170.23"),  // AWS EKS
	netip.MustParseAddr("fd00:ec2::23"),    // AWS EKS
	netip.MustParseAddr("fd20:ce::254"),    // Google Cloud
	netip.MustParseAddr("100.100.100.200"), // Alibaba Cloud
	netip.MustParseAddr("168.63.129.16"),   // Azure
}

// cameraAddress returns an error for an address that no camera has. It reads the addresses
// of this node anew each time: they come and go.
func cameraAddress(to netip.Addr) error {
	own, err := net.InterfaceAddrs()
	if err != nil {
		return fmt.Errorf("list this node's addresses: %w", err)
	}
	return checkAddress(to, own)
}

func checkAddress(to netip.Addr, own []net.Addr) error {
	to = to.Unmap().WithZone("")
	ofNode := func(a net.Addr) bool {
		prefix, ok := a.(*net.IPNet)
		return ok && prefix.IP.Equal(to.AsSlice())
	}
	if to.IsLoopback() || slices.ContainsFunc(own, ofNode) {
		return fmt.Errorf("%s is an address of this node, and not followed", to)
	}
	if to.IsUnspecified() || to.IsMulticast() || slices.Contains(metadataServices, to) {
		return fmt.Errorf("%s is no address of a camera", to)
	}
	return nil
}
