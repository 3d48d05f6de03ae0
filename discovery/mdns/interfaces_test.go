package mdns

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func TestInterfaces(t *testing.T) {
	if !inNewNamespace(t) {
		return
	}
	peer := newNeighbour(t)
	peer.cable("eth0", []string{"10.7.0.1/24"}, []string{"10.7.0.2/24"})
	peer.cable("eth1", []string{"10.8.0.1/24", "fd08::1/64"}, nil)
	peer.cable("pod0", nil, nil)                         // a pod's veth: link-local IPv6 only
	peer.cable("port0", []string{"10.9.0.1/24"}, nil)    // a port of a bridge
	peer.cable("ll0", []string{"169.254.1.1/16"}, nil)   // a network without DHCP
	peer.cable("down0", []string{"10.11.0.1/24"}, nil)   // not up
	peer.cable("nocable", []string{"10.12.0.1/24"}, nil) // its other end is down
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}
	byName := func(name string) netlink.Link {
		link, err := netlink.LinkByName(name)
		if err != nil {
			t.Fatal(err)
		}
		return link
	}
	if err := errors.Join(netlink.LinkAdd(bridge), netlink.LinkSetMaster(byName("port0"), bridge), netlink.LinkSetDown(byName("down0"))); err != nil {
		t.Fatal(err)
	}
	peer.do(func() error {
		link, err := netlink.LinkByName("nocable")
		if err != nil {
			return err
		}
		return netlink.LinkSetDown(link)
	})
	// The kernel tells of a lost carrier within a second.
	for deadline := time.Now().Add(30 * time.Second); byName("nocable").Attrs().RawFlags&unix.IFF_RUNNING != 0; {
		if time.Now().After(deadline) {
			t.Fatal("nocable still runs, with its other end down")
		}
		time.Sleep(10 * time.Millisecond)
	}
	for patterns, want := range map[string]string{
		"":            "eth0[10.7.0.1/24] eth1[10.8.0.1/24 fd08::1/64] ll0[169.254.1.1/16]",
		"eth*":        "eth0[10.7.0.1/24] eth1[10.8.0.1/24 fd08::1/64]",
		"eth1 ll? [":  "eth1[10.8.0.1/24 fd08::1/64] ll0[169.254.1.1/16]",
		"!eth1":       "eth0[10.7.0.1/24] ll0[169.254.1.1/16]",
		"!eth* eth0":  "eth0[10.7.0.1/24]",
		"eth* !eth0":  "eth1[10.8.0.1/24 fd08::1/64]",
		"pod*":        "pod0[]", // asked for
		"none":        "",
		"port0 down0": "",
		"!* ll*":      "ll0[169.254.1.1/16]",
	} {
		all, err := interfaces(strings.Fields(patterns))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, i := range all {
			var prefixes []string
			for _, p := range i.prefixes {
				if !p.Addr().Is6() || !p.Addr().IsLinkLocalUnicast() {
					prefixes = append(prefixes, p.String())
				}
			}
			got = append(got, i.name+fmt.Sprint(prefixes))
			if i.v4 != (i.name != "pod0") || !i.v6 {
				t.Errorf("%s: v4 %t, v6 %t", i.name, i.v4, i.v6)
			}
		}
		slices.Sort(got)
		if got := strings.Join(got, " "); got != want {
			t.Errorf("interfaces(%q) = %s, want %s", patterns, got, want)
		}
	}
}
