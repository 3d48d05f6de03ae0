// Package uevent hears of devices that come, go and change: the kernel's uevents and
// those that udevd sends once it has worked on a device.
package uevent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Event is one uevent.
type Event struct {
	// Action is what happened: add, remove, change, move, online, offline, bind, unbind.
	Action string

	// Path is the device's path below sysfs, such as "/devices/virtual/block/loop0".
	Path string

	// Subsystem is the device's bus or class.
	Subsystem string

	// Properties are all KEY=value pairs of the message.
	Properties map[string]string

	// Udevd is true for an event of udevd, which follows the kernel's event of the same
	// SEQNUM: udevd's database and the permissions of the node are ready then.
	Udevd bool
}

// The multicast groups of NETLINK_KOBJECT_UEVENT.
const (
	groupKernel = 1 << 0
	groupUdevd  = 1 << 1
)

const (
	// receiveBuffer is how many bytes of events may wait. udevd asks for 128 MiB; events
	// that do not fit are told as lost.
	receiveBuffer = 8 << 20

	// maxMessage is longer than any message: the kernel's have at most 2 KiB, udevd's
	// some more properties.
	maxMessage = 64 << 10
)

// Watch calls changed with nil as soon as it listens, and then with every event of the
// kernel and of udevd, until ctx ends; never concurrently. A nil Event means that events
// may have been missed, so that all devices need to be looked at again: at the start,
// and when more came than the socket could hold. Messages that neither the kernel nor
// root's udevd sent are dropped.
//
// It returns ctx's error, or why it cannot listen. The kernel sends uevents of network
// devices, and of devices on top of them such as macvtap, only to the network namespace
// that they are in; udevd's events stay in the network namespace of udevd.
func Watch(ctx context.Context, changed func(*Event)) error {
	return watch(ctx, receiveBuffer, changed)
}

func watch(ctx context.Context, buffer int, changed func(*Event)) error {
	socket, err := listen(buffer)
	if err != nil {
		return fmt.Errorf("listen to uevents: %w", err)
	}
	defer socket.Close()
	// A deadline in the past ends the reading. It is the one thing that may be done to
	// the socket from another goroutine.
	stop := context.AfterFunc(ctx, func() { _ = socket.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()

	connection, err := socket.SyscallConn()
	if err != nil {
		return fmt.Errorf("listen to uevents: %w", err)
	}
	changed(nil)
	message, control := make([]byte, maxMessage), make([]byte, unix.CmsgSpace(unix.SizeofUcred))
	// Once the kernel has said that events did not fit, it drops all that come until those that wait
	// were read, and says so no more (net/netlink/af_netlink.c, NETLINK_S_CONGESTED).
	dropping := false
	for {
		event, err := receive(connection, message, control, !dropping)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, unix.ENOBUFS):
			dropping = true
			changed(nil)
		case errors.Is(err, unix.EAGAIN):
			dropping = false
			changed(nil)
		case err != nil:
			return fmt.Errorf("receive uevents: %w", err)
		case event != nil:
			changed(event)
		}
	}
}

// listen opens the socket. It joins both groups: whether udevd runs may change, and only
// who joins can tell whether udevd is in this network namespace.
func listen(buffer int) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket: %w", err)
	}
	// Without CAP_NET_ADMIN the buffer is bounded by net.core.rmem_max.
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, buffer) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, buffer)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PASSCRED, 1); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("ask for senders' credentials: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groupKernel | groupUdevd}); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("join the groups of uevents: %w", err)
	}
	return os.NewFile(uintptr(fd), "uevent"), nil
}

// receive takes a message. It returns nil without an error for one that is not to be
// believed or understood, and ENOBUFS when messages were lost. If there is none it waits,
// or returns EAGAIN.
func receive(connection syscall.RawConn, message, control []byte, wait bool) (*Event, error) {
	var n, controlled, flags int
	var from unix.Sockaddr
	var failed error
	err := connection.Read(func(fd uintptr) bool {
		for {
			n, controlled, flags, from, failed = unix.Recvmsg(int(fd), message, control, 0)
			if !errors.Is(failed, unix.EINTR) {
				break
			}
		}
		return !wait || !errors.Is(failed, unix.EAGAIN)
	})
	if err := cmp.Or(err, failed); err != nil {
		return nil, err
	}
	sender, ok := from.(*unix.SockaddrNetlink)
	if !ok {
		return nil, nil
	}
	udevd, ok := trusted(sender, credentials(control[:controlled]))
	if !ok {
		return nil, nil
	}
	if flags&unix.MSG_TRUNC != 0 {
		return nil, unix.ENOBUFS // Longer than any message should be: look for yourself.
	}
	return parse(message[:n], udevd), nil
}

// credentials returns the sender's, as the kernel vouches for them, or nil.
func credentials(control []byte) *unix.Ucred {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return nil
	}
	for i := range messages {
		if ucred, err := unix.ParseUnixCredentials(&messages[i]); err == nil {
			return ucred
		}
	}
	return nil
}

// trusted says who may be believed, as libudev does: the kernel, whose port is 0, in its
// group, and root in udevd's. Messages to this socket alone are nobody's.
func trusted(sender *unix.SockaddrNetlink, sent *unix.Ucred) (udevd, ok bool) {
	switch sender.Groups {
	case groupKernel:
		return false, sender.Pid == 0
	case groupUdevd:
		return true, sender.Pid != 0 && sent != nil && sent.Uid == 0
	}
	return false, false
}
