// Package systemd speaks with the service manager: sockets that it opened for us
// (sd_listen_fds(3)) and what it is told of our state (sd_notify(3)). Without
// systemd everything here does nothing.
package systemd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"k8s.io/klog/v2"
)

// States for Notify.
const (
	Ready    = "READY=1"
	Stopping = "STOPPING=1"
	alive    = "WATCHDOG=1"
)

// firstFD is SD_LISTEN_FDS_START.
const firstFD = 3

// Listener returns the socket at path that systemd opened and keeps open while we
// restart, so that the kubelet's connections wait instead of failing; nil when
// systemd passed no sockets. To have passed others only is an error. Closing it
// leaves the file. Call it once, and early: the numbers of the descriptors must
// not have been given away.
func Listener(path string) (net.Listener, error) {
	defer func() { // not for child processes
		for _, name := range []string{"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"} {
			os.Unsetenv(name)
		}
	}()
	if os.Getenv("LISTEN_PID") != strconv.Itoa(os.Getpid()) {
		return nil, nil
	}
	n, err := strconv.Atoi(os.Getenv("LISTEN_FDS"))
	if err != nil || n <= 0 {
		return nil, nil
	}
	var others []string
	var found net.Listener
	for fd := firstFD; fd < firstFD+n; fd++ {
		file := os.NewFile(uintptr(fd), "systemd socket")
		l, err := net.FileListener(file) // a copy
		file.Close()
		switch {
		case err != nil:
			others = append(others, fmt.Sprintf("descriptor %d (%v)", fd, err))
		case found == nil && l.Addr().Network() == "unix" && filepath.Clean(l.Addr().String()) == path:
			found = l
		default:
			others = append(others, l.Addr().String())
			l.Close()
		}
	}
	if found == nil {
		return nil, fmt.Errorf("systemd passed the sockets %s, and not %s: make ListenStream= of kubecri.socket and --listen agree", strings.Join(others, ", "), path)
	}
	return found, nil
}

// Notify tells the service manager a state.
func Notify(state string) error {
	address := os.Getenv("NOTIFY_SOCKET")
	if address == "" {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: address, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("tell systemd %s: %w", state, err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte(state)); err != nil {
		return fmt.Errorf("tell systemd %s: %w", state, err)
	}
	return nil
}

// Watchdog tells the service manager that we are alive while healthy says so,
// twice in the time after which it would restart us (WatchdogSec=), until ctx is
// done. It returns at once when there is no such time.
func Watchdog(ctx context.Context, healthy func(context.Context) error) {
	within, err := watchdogTime()
	if err != nil {
		klog.FromContext(ctx).Error(err, "The watchdog is not served, systemd may restart kubecri for it")
	}
	if within == 0 {
		return
	}
	ticker := time.NewTicker(within / 2)
	defer ticker.Stop()
	for {
		checking, cancel := context.WithTimeout(ctx, within/2)
		err := healthy(checking)
		cancel()
		if err == nil {
			err = Notify(alive)
		}
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Not well: systemd restarts kubecri unless this passes", "within", within)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// watchdogTime returns WatchdogSec=; 0 when it is not set for this process.
func watchdogTime() (time.Duration, error) {
	usec := os.Getenv("WATCHDOG_USEC")
	pid := os.Getenv("WATCHDOG_PID")
	if usec == "" || pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return 0, nil
	}
	n, err := strconv.ParseInt(usec, 10, 64)
	if err != nil || n <= 0 {
		return 0, errors.Join(fmt.Errorf("WATCHDOG_USEC is %q", usec), err)
	}
	return time.Duration(n) * time.Microsecond, nil
}
