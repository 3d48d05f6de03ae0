package cluster

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Tap is a macvtap interface of a node: a real character device that the kernel
// adds and removes at run time, with uevents, and that sysfs shows on its node
// alone. /dev is the machine's, so every node has the file.
type Tap struct {
	// Interface is its name in the node's network namespace.
	Interface string
	// Device is the character device, /dev/tap<index of the interface>.
	Device string
	// DevPath is the device's path beneath the node's /sys, as in udev's DEVPATH.
	DevPath string
}

const (
	// Indices of macvtap interfaces are drawn from this range. They are apart on the
	// whole machine, because files in /dev are named after them.
	minTapIndex, maxTapIndex = 100_000, 1_000_000
	tapTries                 = 10
)

// AddMacvtap plugs a device in: it returns once the device is there.
func (c *Cluster) AddMacvtap(node, name string) (Tap, error) {
	h, closeHandle, err := c.netlinkOnNode(node)
	if err != nil {
		return Tap{}, err
	}
	defer closeHandle()
	parent, err := h.LinkByName(uplink)
	if err != nil {
		return Tap{}, fmt.Errorf("interface %s of %s: %w", uplink, node, err)
	}
	for range tapTries {
		index := minTapIndex + rand.IntN(maxTapIndex-minTapIndex)
		tap := Tap{
			Interface: name,
			Device:    fmt.Sprintf("/dev/tap%d", index),
			DevPath:   fmt.Sprintf("/devices/virtual/net/%s/macvtap/tap%d", name, index),
		}
		if _, err := os.Lstat(tap.Device); err == nil {
			continue // another node's, or another cluster's
		}
		link := &netlink.Macvtap{Macvlan: netlink.Macvlan{LinkAttrs: netlink.NewLinkAttrs(), Mode: netlink.MACVLAN_MODE_BRIDGE}}
		link.Name, link.Index, link.ParentIndex = name, index, parent.Attrs().Index
		switch err := h.LinkAdd(link); {
		case errors.Is(err, unix.EOPNOTSUPP):
			return Tap{}, fmt.Errorf("the kernel makes no macvtap (modprobe macvtap): %w", err)
		case err != nil:
			return Tap{}, fmt.Errorf("add macvtap %s to %s: %w", name, node, err)
		}
		if _, err := os.Lstat(tap.Device); err != nil {
			return Tap{}, errors.Join(fmt.Errorf("%w: /dev must be a devtmpfs, in which the kernel makes the devices' files", err), h.LinkDel(link))
		}
		return tap, nil
	}
	return Tap{}, fmt.Errorf("found no free /dev/tap<number> in %d tries", tapTries)
}

// RemoveMacvtap unplugs what AddMacvtap has plugged in.
func (c *Cluster) RemoveMacvtap(node, name string) error {
	h, closeHandle, err := c.netlinkOnNode(node)
	if err != nil {
		return err
	}
	defer closeHandle()
	link, err := h.LinkByName(name)
	if err != nil {
		return fmt.Errorf("macvtap %s of %s: %w", name, node, err)
	}
	if err := h.LinkDel(link); err != nil {
		return fmt.Errorf("remove macvtap %s from %s: %w", name, node, err)
	}
	return nil
}

func (c *Cluster) netlinkOnNode(node string) (*netlink.Handle, func(), error) {
	if !slices.Contains(c.cfg.Nodes, node) {
		return nil, nil, fmt.Errorf("the cluster has no node %q", node)
	}
	return netlinkIn(c.layout.netNS(node))
}
