// Package overgrpc runs plugins for tests as their hosts do over gRPC. What loads .so files must not
// import it: a package of the host is one that a plugin has to match.
package overgrpc

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/kubeslot/kubeslot/device-scheduler/host"
	"github.com/kubeslot/kubeslot/plugins/remote"
	"github.com/kubeslot/kubeslot/plugins/server"
	"github.com/kubeslot/kubeslot/types/device"
	"github.com/kubeslot/kubeslot/types/devicescheduler"
	"github.com/kubeslot/kubeslot/types/plugin/registration"
)

const (
	// deadline is how long a plugin may take to be ready.
	deadline = 30 * time.Second
	// lookInterval is how often a device is asked what the node has.
	lookInterval = 10 * time.Millisecond
)

// Scheduler returns a host that asks the scheduler's half over gRPC.
func Scheduler(t testing.TB, s devicescheduler.DeviceScheduler, resources ...string) *host.Host {
	t.Helper()
	h, err := host.New(nil, host.Options{})
	if err != nil {
		t.Fatal(err)
	}
	sockets, err := remote.New(remote.Config{
		Folder: serve(t, server.Scheduler(s, resources...)),
		Half:   registration.Half_SCHEDULER,
		Added: func(p *remote.Plugin) remote.Handler {
			half, err := remote.NewScheduler(h, p, deadline)
			if err != nil {
				t.Error(err)
			}
			return scheduler{half}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	connect(t, sockets)
	return h
}

// scheduler is a Handler that nobody tells.
type scheduler struct{ *remote.Scheduler }

// Changed implements remote.Handler.
func (scheduler) Changed() {}

// Device returns the node's half as it is over gRPC.
func Device(t testing.TB, d device.Device) *remote.Device {
	t.Helper()
	var half *remote.Device
	devices, err := remote.NewDevices(remote.DevicesConfig{
		Folder:  serve(t, server.Device(d, lookInterval)),
		Node:    "node",
		Timeout: remote.DefaultDeviceTimeout,
		Added:   func(added *remote.Device) func() { half = added; return func() {} },
	})
	if err != nil {
		t.Fatal(err)
	}
	connect(t, devices.Sockets)
	return half
}

// serve serves the plugin until the test ends.
func serve(t testing.TB, p server.Plugin) (folder string) {
	t.Helper()
	folder, err := os.MkdirTemp("", "plugin") // whose path is short enough for sockets
	if err != nil {
		t.Fatal(err)
	}
	run(t, func(ctx context.Context) {
		if err := p.Serve(ctx, folder); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { os.RemoveAll(folder) })
	return folder
}

// connect connects to the one plugin that there is.
func connect(t testing.TB, s *remote.Sockets) {
	t.Helper()
	run(t, s.Run)
	for end := time.Now().Add(deadline); len(s.Plugins()) == 0 || s.Plugins()[0].Away() != nil; {
		if time.Now().After(end) {
			t.Fatal("the plugin is not ready: ", s.Away())
		}
		time.Sleep(time.Millisecond)
	}
}

// run runs f until the test ends, what was run last first.
func run(t testing.TB, f func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
}
