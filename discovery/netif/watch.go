package netif

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Watch calls changed at once, and when links or addresses have changed, until ctx ends
// or it fails. It returns ctx's error, or why it cannot watch. changed must not block:
// one change makes many calls.
func Watch(ctx context.Context, changed func()) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open route netlink socket: %w", err)
	}
	file := os.NewFile(uintptr(fd), "rtnetlink")
	defer file.Close()
	groups := uint32(unix.RTMGRP_LINK | unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV6_IFADDR)
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}); err != nil {
		return fmt.Errorf("bind route netlink socket: %w", err)
	}
	defer context.AfterFunc(ctx, func() { _ = file.Close() })()
	buffer := make([]byte, 64<<10)
	for {
		changed() // first for what changed before the socket was there
		// The message itself does not matter: everything is listed anew. So messages may
		// get lost, which is ENOBUFS.
		if _, err := file.Read(buffer); ctx.Err() != nil {
			return ctx.Err()
		} else if err != nil && !errors.Is(err, unix.ENOBUFS) {
			return fmt.Errorf("read route netlink socket: %w", err)
		}
	}
}
