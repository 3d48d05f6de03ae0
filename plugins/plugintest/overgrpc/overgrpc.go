// Package overgrpc runs plugins for tests as their hosts do over gRPC. What loads .so files must not
// import it: a package of the host is one that a plugin has to match.
package overgrpc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kubeslot/kubeslot/device-scheduler/host"
	"github.com/kubeslot/kubeslot/plugins/remote"
	"github.com/kubeslot/kubeslot/plugins/server"
	"github.com/kubeslot/kubeslot/test/await"
	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/device"
	"github.com/kubeslot/kubeslot/types/devicescheduler"
	"github.com/kubeslot/kubeslot/types/plugin/registration"
)

// lookInterval is how often a device is asked what the node has.
const lookInterval = 10 * time.Millisecond

// Scheduler returns a host that asks the scheduler's half over gRPC.
func Scheduler(t testing.TB, s devicescheduler.DeviceScheduler, resources ...string) *host.Host {
	t.Helper()
	h, err := host.New(nil, host.Options{})
	if err != nil {
		t.Fatal(err)
	}
	sockets, err := remote.New(remote.Config{
		Options: remote.Options{Sockets: serve(t, server.Scheduler(s, resources...)), Timeout: await.Patience},
		Half:    registration.Half_SCHEDULER,
		Added: func(p *remote.Plugin) remote.Handler {
			half, err := remote.NewScheduler(h, p)
			if err != nil {
				t.Error(err)
			}
			return scheduler{half}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := connect(t, sockets); err != nil {
		t.Fatal(err)
	}
	return h
}

// scheduler is a Handler that nobody tells.
type scheduler struct{ *remote.Scheduler }

// Changed implements remote.Handler.
func (scheduler) Changed() {}

// Device returns the node's half as it is over gRPC, to be used like d itself. It calls d only while one
// of its own methods runs: a test may look at d in between.
func Device(t testing.TB, d device.Device) device.Device {
	n := &node{served: &served{Device: d}, t: t}
	n.Lock()
	return n
}

// served is the half as its server calls it, which looks now and then what the node has.
type served struct {
	device.Device
	sync.Mutex
}

// Start implements device.Device.
func (s *served) Start() error {
	s.Lock()
	defer s.Unlock()
	return s.Device.Start()
}

// UpdateNodeInfo implements device.Device.
func (s *served) UpdateNodeInfo(info *types.NodeInfo) error {
	s.Lock()
	defer s.Unlock()
	return s.Device.UpdateNodeInfo(info)
}

// OwnVariables implements device.VariableOwner.
func (s *served) OwnVariables() map[string]string {
	if owner, ok := s.Device.(device.VariableOwner); ok {
		return owner.OwnVariables()
	}
	return nil
}

// node is the half as its host calls it. It is locked but for while a method runs.
type node struct {
	*served
	t    testing.TB
	host *remote.Device
}

// Start serves the half and connects to it.
func (n *node) Start() error {
	n.Unlock()
	defer n.Lock()
	folder := serve(n.t, server.Device(n.served, lookInterval))
	n.t.Cleanup(n.Unlock) // before the server ends, which waits for its calls
	sockets, err := remote.New(remote.Config{
		Options: remote.Options{Sockets: folder, Timeout: remote.DefaultDeviceTimeout},
		Half:    registration.Half_DEVICE,
		Added: func(p *remote.Plugin) remote.Handler {
			n.host = &remote.Device{Plugin: p, Node: "node", Wake: func() {}}
			return n.host
		},
	})
	if err != nil {
		n.t.Fatal(err)
	}
	return connect(n.t, sockets)
}

// UpdateNodeInfo waits until the host knows what the half says now.
func (n *node) UpdateNodeInfo(info *types.NodeInfo) error {
	now := types.NewNodeInfo()
	if err := n.Device.UpdateNodeInfo(now); err != nil {
		return err
	}
	n.Unlock()
	defer n.Lock()
	await.That(n.t, fmt.Sprintf("the host to know %v of the node", now), func() (bool, string) {
		err := n.host.UpdateNodeInfo(info)
		return err == nil && reflect.DeepEqual(info, now), fmt.Sprint(info, err)
	})
	return nil
}

// OwnVariables returns those that the host knows.
func (n *node) OwnVariables() map[string]string { return n.host.OwnVariables() }

// Allocate is for a container that it adds to the pod: over gRPC, containers have names.
func (n *node) Allocate(pod *types.PodInfo, c *types.ContainerInfo) (
	mounts []device.Mount, devices []string, env map[string]string, err error) {
	n.Unlock()
	defer n.Lock()
	with := types.NewPodInfo()
	if pod != nil {
		with = pod.Clone()
	}
	with.RunningContainers["added"] = *c
	mounts, devices, env, err = n.host.AllocateContainer(n.t.Context(), with, "added")
	return mounts, devices, env, own(err)
}

// own returns the plugin's own error, of what the host says about it.
func own(err error) error {
	if err == nil {
		return nil
	}
	_, text, ok := strings.Cut(err.Error(), ": Unknown: ")
	if !ok {
		return err
	}
	text, _, _ = strings.Cut(text, "; start it, or run without it")
	return errors.New(text)
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
	await.That(t, "the socket", func() bool { // hosts look for it once a second
		sockets, _ := filepath.Glob(filepath.Join(folder, "*.sock"))
		return len(sockets) > 0
	})
	return folder
}

// connect connects to the one plugin that there is. An error is why that cannot start.
func connect(t testing.TB, s *remote.Sockets) error {
	t.Helper()
	run(t, s.Run)
	var away error
	await.That(t, "the plugin to be ready", func() (bool, string) {
		plugins := s.Plugins()
		if len(plugins) == 0 {
			return false, fmt.Sprint(s.Away())
		}
		away = plugins[0].Away()
		return away == nil || strings.Contains(away.Error(), " failed in Start: "), fmt.Sprint(away)
	})
	return own(away)
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
