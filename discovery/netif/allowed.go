package netif

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
)

// metadataServices are the addresses at which clouds give credentials to whoever asks from
// a node. Other link-local addresses are allowed: a device without DHCP has one.
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

// Allow is a net.Dialer's ControlContext: it asks allowed of each address that a name
// stands for.
func Allow(allowed func(netip.Addr) error) func(context.Context, string, string, syscall.RawConn) error {
	return func(_ context.Context, _, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		if err != nil {
			return err
		}
		return allowed(to.Addr())
	}
}

// CheckOther returns an error for an address of this node, and for one that no device
// has. It reads the node's addresses anew each time: they come and go.
func CheckOther(to netip.Addr) error {
	own, err := net.InterfaceAddrs()
	if err != nil {
		return fmt.Errorf("list this node's addresses: %w", err)
	}
	return checkOther(to, own)
}

func checkOther(to netip.Addr, own []net.Addr) error {
	to = to.Unmap().WithZone("")
	ofNode := func(a net.Addr) bool {
		prefix, ok := a.(*net.IPNet)
		return ok && prefix.IP.Equal(to.AsSlice())
	}
	if to.IsLoopback() || slices.ContainsFunc(own, ofNode) {
		return fmt.Errorf("%s is an address of this node, and not followed", to)
	}
	return CheckDevice(to)
}

// CheckDevice returns an error for an address that no device has.
func CheckDevice(to netip.Addr) error {
	to = to.Unmap().WithZone("")
	if to.IsUnspecified() || to.IsMulticast() || slices.Contains(metadataServices, to) {
		return fmt.Errorf("%s is no address of a device", to)
	}
	return nil
}
