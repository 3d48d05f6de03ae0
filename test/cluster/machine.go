package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Machine is a machine on the cluster's network that is no node, such as a camera:
// a network namespace of its own. Pods and nodes reach it, and it reaches them,
// by multicast too.
type Machine struct {
	Name string
	// IP is its address, which exists only in the cluster's namespaces.
	IP string
	// NetNS is a bind mount, for nsenter(1) and setns(2).
	NetNS string
}

const maxMachines = 250

func machineIP(index int) netip.Addr { return netip.AddrFrom4([4]byte{10, 240, 2, byte(index + 1)}) }

// machinePort is the name of a machine's end at the switch.
func machinePort(index int) string { return fmt.Sprintf("machine%d", index) }

// AddMachine puts a machine on the network, until RemoveMachine or Down.
func (c *Cluster) AddMachine(name string) (m Machine, err error) {
	l := c.layout
	if !validName.MatchString(name) || slices.Contains(append([]string{controlNS, switchNS}, c.cfg.Nodes...), name) {
		return m, fmt.Errorf("machine name %q: want one that no node has, of lower case letters, digits and '-', at most 32", name)
	}
	m = Machine{Name: name, NetNS: l.netNS(name)}
	if _, err := os.Lstat(m.NetNS); err == nil {
		return m, fmt.Errorf("there is a machine %q already", name)
	}
	hub, closeHub, err := netlinkIn(l.netNS(switchNS))
	if err != nil {
		return m, err
	}
	defer closeHub()
	br, err := hub.LinkByName(bridge)
	if err != nil {
		return m, fmt.Errorf("bridge of the cluster: %w", err)
	}
	index, err := freeMachine(hub)
	if err != nil {
		return m, err
	}
	m.IP = machineIP(index).String()
	if err := makeNetNS(m.NetNS); err != nil {
		return m, err
	}
	to := member{ns: m.NetNS, ip: machineIP(index)}
	for i := range c.cfg.Nodes {
		to.routes = append(to.routes, route{to: podRange(i), via: nodeIP(i)})
	}
	if err := plugIn(hub, br.Attrs().Index, machinePort(index), to); err != nil {
		return m, errors.Join(fmt.Errorf("network of %s: %w", name, err), removeNetNS(m.NetNS))
	}
	return m, nil
}

// freeMachine finds a number that no machine at the switch has.
func freeMachine(hub *netlink.Handle) (int, error) {
	for index := range maxMachines {
		_, err := hub.LinkByName(machinePort(index))
		if errors.As(err, &netlink.LinkNotFoundError{}) {
			return index, nil
		}
		if err != nil {
			return 0, err
		}
	}
	return 0, fmt.Errorf("there are %d machines already", maxMachines)
}

// RemoveMachine takes a machine away, with the programs that run on it. Their logs
// stay.
func (c *Cluster) RemoveMachine(name string) error {
	path := c.layout.netNS(name)
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) || slices.Contains(c.cfg.Nodes, name) {
		return fmt.Errorf("there is no machine %q", name)
	}
	for _, p := range c.layout.processes() {
		if p.Node != name {
			continue
		}
		if err := c.RemoveProgram(p.Component, name); err != nil {
			return err
		}
	}
	// A namespace goes, and its veth with it, when nothing uses it any more; the veth
	// has to go now, for the address may be given again.
	h, closeHandle, err := netlinkIn(path)
	if err != nil {
		return err
	}
	defer closeHandle()
	link, err := h.LinkByName(uplink)
	if err != nil {
		return fmt.Errorf("interface %s of %s: %w", uplink, name, err)
	}
	return errors.Join(h.LinkDel(link), removeNetNS(path))
}

func removeNetNS(path string) error {
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unbind network namespace %s: %w", path, err)
	}
	return os.Remove(path)
}
