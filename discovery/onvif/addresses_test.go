package onvif

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/kubeslot/kubeslot/discovery/netif"
	"github.com/kubeslot/kubeslot/test/onvifcamera/lan"
)

// A server on all of this node's addresses is asked at none of them, by address or name,
// whoever announced it, and also where the address is new.
func TestNoAddressOfThisNodeIsFollowed(t *testing.T) {
	_ = lan.New(t)
	listener, err := net.Listen("tcp", "[::]:0")
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("this node was asked at %s", r.Host)
	}))
	_ = server.Listener.Close()
	server.Listener = listener
	server.Start()
	t.Cleanup(server.Close)

	c := newClient(netif.CheckOther)
	eth0, err := netlink.LinkByName("eth0")
	if err != nil {
		t.Fatal(err)
	}
	late, err := netlink.ParseAddr("10.9.9.9/32")
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.AddrAdd(eth0, late); err != nil {
		t.Fatal(err)
	}
	hosts := []string{"localhost", "[::ffff:10.9.9.9]"}
	addresses, err := netlink.AddrList(eth0, netlink.FAMILY_ALL)
	if err != nil || len(addresses) < 4 {
		t.Fatalf("eth0 has %v, %v, want IPv4 and IPv6 addresses, link-local ones, and the late one", addresses, err)
	}
	for _, a := range addresses {
		host := a.IP.String()
		if a.IP.To4() == nil {
			host = "[" + host + "]"
		}
		hosts = append(hosts, host)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	for _, host := range hosts {
		for _, source := range []string{"192.168.77.9", strings.Trim(host, "[]")} {
			at := target{xaddr: fmt.Sprintf("http://%s:%d/", host, port), zone: fmt.Sprint(eth0.Attrs().Index)}
			at.source, _ = netip.ParseAddr(source)
			if _, err := c.isThere(t.Context(), at); err == nil ||
				!strings.Contains(err.Error(), "is an address of this node") {
				t.Errorf("%s, announced by %s: error is %v, want a refusal", host, source, err)
			}
		}
	}
}
