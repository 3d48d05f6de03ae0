package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// The addresses exist only in a cluster's namespaces, so every cluster has the
// same ones.
//
//	nodes, control plane  10.240.0.0/16, of which 10.240.2.0/24 are other machines
//	pods                  10.241.<n>.0/24 for the n-th node
//	services              10.96.0.0/16; only the first one is served
//
// There is no kube-proxy, because it would need the machine's iptables. The API
// server alone answers at its service's address: it listens on port 443, and the
// control plane's namespace has that address on its loopback.
var (
	controlIP  = netip.MustParseAddr("10.240.0.10")
	apiService = netip.MustParseAddr("10.96.0.1")
	multicast  = netip.MustParsePrefix("224.0.0.0/4")
)

const (
	networkBits  = 16
	serviceRange = "10.96.0.0/16"
	apiPort      = 443

	controlNS = "control"
	switchNS  = "switch"
	bridge    = "br0"
	uplink    = "eth0"
)

func nodeIP(index int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 240, 1, byte(index + 1)})
}

func podRange(index int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 241, byte(index), 0}), 24)
}

// port is the name of a namespace's end at the switch: 0 is the control plane,
// node n is n+1. Interface names have at most 15 bytes, too few for a node's name.
func port(index int) string { return fmt.Sprintf("port%d", index) }

type route struct {
	to  netip.Prefix
	via netip.Addr
}

// member is a namespace on the cluster's network.
type member struct {
	ns       string
	ip       netip.Addr
	loopback []netip.Addr // further addresses of its own
	routes   []route
}

// members lists the control plane and the nodes, in the order of their ports.
func members(l layout, nodes []string) []member {
	api := netip.PrefixFrom(apiService, apiService.BitLen())
	all := []member{{ns: l.netNS(controlNS), ip: controlIP, loopback: []netip.Addr{apiService}}}
	for i, name := range nodes {
		all = append(all, member{ns: l.netNS(name), ip: nodeIP(i), routes: []route{{to: api, via: controlIP}}})
	}
	for m := range all {
		for i := range nodes {
			if m != i+1 {
				all[m].routes = append(all[m].routes, route{to: podRange(i), via: nodeIP(i)})
			}
		}
	}
	return all
}

// createNetwork makes the namespaces of the network and joins them.
func createNetwork(l layout, nodes []string) error {
	if err := makeNetNS(l.netNS(switchNS)); err != nil {
		return err
	}
	hub, closeHub, err := netlinkIn(l.netNS(switchNS))
	if err != nil {
		return err
	}
	defer closeHub()
	// Without snooping the bridge passes multicast to every port, like a simple switch.
	snooping := false
	br := &netlink.Bridge{LinkAttrs: netlink.NewLinkAttrs(), MulticastSnooping: &snooping}
	br.Name = bridge
	if err := errors.Join(hub.LinkAdd(br), hub.LinkSetUp(br)); err != nil {
		return fmt.Errorf("create bridge: %w", err)
	}
	for i, m := range members(l, nodes) {
		if err := makeNetNS(m.ns); err != nil {
			return err
		}
		if err := plugIn(hub, br.Index, port(i), m); err != nil {
			return fmt.Errorf("network of %s: %w", m.ns, err)
		}
	}
	return nil
}

// plugIn gives a namespace its addresses and routes, and a veth to the bridge.
func plugIn(hub *netlink.Handle, bridge int, port string, m member) error {
	ns, err := netns.GetFromPath(m.ns)
	if err != nil {
		return err
	}
	defer ns.Close()
	veth := &netlink.Veth{LinkAttrs: netlink.NewLinkAttrs(), PeerName: uplink, PeerNamespace: netlink.NsFd(int(ns))}
	veth.Name, veth.MasterIndex = port, bridge
	if err := hub.LinkAdd(veth); err != nil {
		return fmt.Errorf("create veth %s: %w", port, err)
	}
	if err := hub.LinkSetUp(veth); err != nil {
		return fmt.Errorf("set %s up: %w", port, err)
	}

	if err := inNetNS(m.ns, configureIP); err != nil {
		return err
	}
	h, err := netlink.NewHandleAt(ns)
	if err != nil {
		return err
	}
	defer h.Close()
	if err := addAddresses(h, "lo", 32, m.loopback...); err != nil {
		return err
	}
	if err := addAddresses(h, uplink, networkBits, m.ip); err != nil {
		return err
	}
	link, err := h.LinkByName(uplink)
	if err != nil {
		return err
	}
	// There is no default route, which multicast of most programs needs.
	routes := []netlink.Route{{LinkIndex: link.Attrs().Index, Dst: ipNet(multicast), Scope: netlink.SCOPE_LINK}}
	for _, r := range m.routes {
		routes = append(routes, netlink.Route{Dst: ipNet(r.to), Gw: r.via.AsSlice()})
	}
	for _, r := range routes {
		if err := h.RouteAdd(&r); err != nil {
			return fmt.Errorf("route %s: %w", r, err)
		}
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// configureIP makes the calling thread's network namespace forward, and use its
// IPv6 addresses at once instead of asking the neighbours for a second first.
func configureIP() error {
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644); err != nil {
		return err
	}
	err := os.WriteFile("/proc/sys/net/ipv6/conf/"+uplink+"/accept_dad", []byte("0"), 0o644)
	if errors.Is(err, fs.ErrNotExist) { // a kernel without IPv6
		return nil
	}
	return err
}

func addAddresses(h *netlink.Handle, name string, bits int, addrs ...netip.Addr) error {
	link, err := h.LinkByName(name)
	if err != nil {
		return fmt.Errorf("interface %s: %w", name, err)
	}
	for _, addr := range addrs {
		a, err := netlink.ParseAddr(netip.PrefixFrom(addr, bits).String())
		if err != nil {
			return err
		}
		if err := h.AddrAdd(link, a); err != nil {
			return fmt.Errorf("address %s on %s: %w", addr, name, err)
		}
	}
	if err := h.LinkSetUp(link); err != nil {
		return fmt.Errorf("set %s up: %w", name, err)
	}
	return nil
}

func netlinkIn(path string) (*netlink.Handle, func(), error) {
	ns, err := netns.GetFromPath(path)
	if err != nil {
		return nil, nil, fmt.Errorf("network namespace %s: %w", path, err)
	}
	h, err := netlink.NewHandleAt(ns)
	if err != nil {
		ns.Close()
		return nil, nil, fmt.Errorf("netlink in %s: %w", path, err)
	}
	return h, func() { h.Close(); ns.Close() }, nil
}

// setPort connects or cuts a namespace's veth at the switch.
func setPort(l layout, name string, up bool) error {
	hub, closeHub, err := netlinkIn(l.netNS(switchNS))
	if err != nil {
		return err
	}
	defer closeHub()
	link, err := hub.LinkByName(name)
	if err != nil {
		return fmt.Errorf("switch port %s: %w", name, err)
	}
	if up {
		return hub.LinkSetUp(link)
	}
	return hub.LinkSetDown(link)
}
