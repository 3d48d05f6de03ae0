package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/contain"
	"github.com/kubeslot/kubeslot/types/device"
	"github.com/kubeslot/kubeslot/types/plugin/v1alpha1"
	"github.com/kubeslot/kubeslot/wake"
)

const (
	// DefaultDeviceTimeout is how long a call of a node's half may take by default.
	DefaultDeviceTimeout = 5 * time.Second

	// streamPause is between two messages of a stream, either way: flow control has a plugin wait
	// that sends more, and each of its messages may become a write of the Node.
	streamPause = 200 * time.Millisecond
)

// Device is the node's half of a plugin as device.Device. What it answers is what the plugin's
// current server has said; only AllocateContainer calls the server. A Device whose fields are set is
// ready to use.
type Device struct {
	*Plugin
	Node string // its name
	// Wake is called whenever the plugin has something new to say, came or went away; it must not wait.
	Wake func()
	// Holders, if set, returns the containers of the node that were assigned anything of device
	// plugins; not ok says that they are not known yet.
	Holders func() (holders []*v1alpha1.Holder, ok bool)
}

// said is what a server says of the node: its State.
type said struct {
	node    atomic.Pointer[types.NodeInfo] // as it is now
	own     map[string]string
	holders wake.Signal // has an entry when which containers hold its devices may have changed
}

// New does nothing.
func (d *Device) New() error { return nil }

// Start returns whether a server is ready: each is started once it is connected.
func (d *Device) Start() error { return d.Away() }

// UpdateNodeInfo writes what the plugin said last.
func (d *Device) UpdateNodeInfo(info *types.NodeInfo) error {
	if err := d.Failing(); err != nil {
		return err
	}
	name := info.Name
	*info = *d.said().node.Load().Clone()
	info.Name = name
	return nil
}

// OwnVariables returns what the plugin said when it was connected.
func (d *Device) OwnVariables() map[string]string {
	if s := d.said(); s != nil {
		return s.own
	}
	return nil
}

// Allocate cannot know for which container it is.
func (d *Device) Allocate(*types.PodInfo, *types.ContainerInfo) ([]device.Mount, []string, map[string]string, error) {
	return nil, nil, nil, errors.ErrUnsupported
}

// AllocateContainer is Allocate for the container of the name.
func (d *Device) AllocateContainer(ctx context.Context, pod *types.PodInfo, container string) (
	mounts []device.Mount, devices []string, env map[string]string, err error) {
	var answer *v1alpha1.DeviceAllocateResponse
	call := func(ctx context.Context, s *Server) (err error) {
		request := &v1alpha1.DeviceAllocateRequest{Pod: v1alpha1.PodInfoOf(pod), Container: container}
		answer, err = v1alpha1.NewDeviceClient(s).Allocate(ctx, request)
		return err
	}
	if err := d.Call(ctx, d.options.Timeout, "Allocate", call); err != nil {
		return nil, nil, nil, err
	}
	for _, m := range answer.GetMounts() {
		mounts = append(mounts,
			device.Mount{ContainerPath: m.GetContainerPath(), HostPath: m.GetHostPath(), Readonly: m.GetReadOnly()})
	}
	return mounts, append(answer.GetDeviceNodes(), answer.GetCdiDevices()...), answer.GetEnv(), nil
}

// said returns what the server that is called has said; while there is none, what the last one had.
// Nil for nothing yet.
func (d *Device) said() *said {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.last == nil {
		return nil
	}
	return d.last.State.(*said)
}

// Changed implements Handler.
func (d *Device) Changed() { d.Wake() }

// Connect implements Handler: it starts the server, and follows what it says of the node until ctx ends.
func (d *Device) Connect(ctx context.Context, s *Server, ready func()) error {
	var holding sync.WaitGroup
	defer holding.Wait()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	client := v1alpha1.NewDeviceClient(s)
	starting, stop := context.WithTimeout(ctx, d.options.Timeout)
	defer stop()
	_, err := client.Start(starting, &v1alpha1.DeviceStartRequest{Node: d.Node})
	if err != nil && status.Code(err) != codes.Unimplemented {
		return &callError{d.name, "Start", err}
	}
	own, err := client.OwnVariables(starting, &v1alpha1.OwnVariablesRequest{})
	if err != nil && status.Code(err) != codes.Unimplemented {
		return &callError{d.name, "OwnVariables", err}
	}
	silent := time.AfterFunc(d.options.Timeout, func() {
		cancel(fmt.Errorf("it %w: its first message, which may be empty", contain.ErrTimeout))
	})
	stream, err := client.Watch(ctx, &v1alpha1.WatchRequest{})
	if err != nil {
		return &callError{d.name, "Watch", err}
	}
	says := &said{own: own.GetVariables(), holders: wake.New()}
	for {
		state, err := stream.Recv()
		if err != nil {
			return &callError{d.name, "Watch", cmp.Or(context.Cause(ctx), err)}
		}
		silent.Stop()
		says.node.Store(state.Info())
		if s.State == nil {
			s.State = says
			ready()
			if d.Holders != nil {
				holding.Go(func() { d.hold(ctx, s, says) })
			}
		}
		d.Wake()
		says.holders.Send() // they are those of what the plugin says that the node has
		select {
		case <-ctx.Done():
		case <-time.After(streamPause):
		}
	}
}
