package netif

import (
	"net"
	"net/netip"
	"strings"
	"testing"
)

// Whoever announces a device chooses where kubecri, in the node's network, connects to.
func TestForbiddenAddresses(t *testing.T) {
	own := []net.Addr{
		&net.IPNet{IP: net.ParseIP("192.168.1.1"), Mask: net.CIDRMask(24, 32)},
		&net.IPNet{IP: net.ParseIP("fd00::9"), Mask: net.CIDRMask(64, 128)},
		&net.IPNet{IP: net.ParseIP("fe80::9"), Mask: net.CIDRMask(64, 128)},
	}
	for want, addresses := range map[string][]string{
		"is an address of this node": {
			"127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "192.168.1.1", "::ffff:192.168.1.1", "fd00::9",
			"fe80::9%eth0",
		},
		"is no address of a device": {
			"0.0.0.0", "::", "::ffff:0.0.0.0", "239.255.255.250", "ff02::c%eth0", "169.254.169.254",
			"::ffff:169.254.169.254",
			"169.254.170.23", "fd00:ec2::254", "fe80::a9fe:a9fe%eth0", "100.100.100.200",
		},
		"": {"192.168.1.64", "10.0.0.1", "169.254.7.7", "fe80::1%eth0", "fd00::1", "2001:db8::1",
			"::ffff:192.168.1.64"},
	} {
		for _, address := range addresses {
			err := checkOther(netip.MustParseAddr(address), own)
			if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("%s: error is %v, want %q", address, err, want)
			}
		}
	}
}
