// Package systemd picks kubecri's socket among those that the service manager opened
// (sd_listen_fds(3)), and serves its watchdog (sd_notify(3)). The protocols are
// coreos/go-systemd's. Without systemd everything here does nothing.
package systemd

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/coreos/go-systemd/v22/daemon"
	"k8s.io/klog/v2"
)

// States for Notify.
const (
	Ready    = daemon.SdNotifyReady
	Stopping = daemon.SdNotifyStopping
)

// Listener returns the socket at path that systemd opened and keeps open while we
// restart, so that the kubelet's connections wait instead of failing; nil when
// systemd passed no sockets. To have passed others only is an error. Closing it
// leaves the file. Call it once, and early: the numbers of the descriptors must
// not have been given away.
func Listener(path string) (found net.Listener, err error) {
	passed, err := activation.Listeners()
	if err != nil || len(passed) == 0 {
		return nil, err
	}
	var others []string
	for i, l := range passed {
		switch {
		case l == nil:
			others = append(others, fmt.Sprintf("descriptor %d, which is no socket", 3+i))
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

// Notify sends the service manager a state.
func Notify(state string) error {
	if _, err := daemon.SdNotify(false, state); err != nil {
		return fmt.Errorf("notify systemd of %s: %w", state, err)
	}
	return nil
}

// Watchdog notifies the service manager that we are alive while healthy says so,
// twice in the time after which it would restart us (WatchdogSec=), until ctx is
// done. It returns at once when there is no such time.
func Watchdog(ctx context.Context, healthy func(context.Context) error) {
	within, err := daemon.SdWatchdogEnabled(false)
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
			err = Notify(daemon.SdNotifyWatchdog)
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
