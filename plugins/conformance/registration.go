package conformance

import (
	"cmp"
	"context"
	"path/filepath"
	"time"

	"google.golang.org/grpc"

	"github.com/kubeslot/kubeslot/plugins/remote"
	"github.com/kubeslot/kubeslot/types/plugin/registration"
	pb "github.com/kubeslot/kubeslot/types/plugin/v1alpha1"
)

// registered is the first check. The others need what it finds out.
var registered = Check{"registration", "GetInfo says name, half and v1alpha1, each time the same",
	"the host does not call a plugin of which it does not know these", register}

var notified = Check{"status", "NotifyStatus is answered",
	"otherwise the plugin's log does not say why it was refused", func(t *target) {
		optional(try(t.ctx, t.quick, t.registration.NotifyStatus, &registration.Status{Version: pb.Version}))
	}}

func startTwice(start func(*target)) Check {
	return Check{"start twice", "Start succeeds, and again",
		"it is called first after each connection, and hosts are restarted", func(t *target) { start(t); start(t) }}
}

// register connects to the server, as the host does, if its registration is valid.
func register(t *target) {
	t.registration = registration.NewRegistrationClient(t.dial(filepath.Base(t.socket)))
	info := same(func() *registration.PluginInfo {
		return call(t, t.quick, t.registration.GetInfo, &registration.GetInfoRequest{})
	})
	half := info.GetHalf()
	if half != registration.Half_DEVICE && half != registration.Half_SCHEDULER {
		fail("the half is %s: want DEVICE or SCHEDULER", half)
	}
	ensure(info.Check(half, pb.Version))
	conn := t.dial(cmp.Or(info.GetSocket(), filepath.Base(t.socket)))
	t.info, t.device, t.scheduler = info, pb.NewDeviceClient(conn), pb.NewDeviceSchedulerClient(conn)
}

// dial connects to a socket of the plugin's folder, which may be there in a moment.
func (t *target) dial(name string) *grpc.ClientConn {
	path := filepath.Join(filepath.Dir(t.socket), name)
	ctx, cancel := context.WithTimeout(t.ctx, connectTimeout)
	defer cancel()
	for {
		conn, err := remote.Dial(ctx, path)
		if err == nil {
			context.AfterFunc(t.ctx, func() { conn.Close() })
			return conn
		}
		select {
		case <-time.After(connectInterval):
		case <-ctx.Done():
			fail("connect to %s: %w", path, err)
		}
	}
}
