package conformance

import (
	"cmp"
	"context"
	"path/filepath"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/kubeslot/kubeslot/types/plugin/registration"
	pb "github.com/kubeslot/kubeslot/types/plugin/v1alpha1"
)

// registered is the first check. The others need what it finds out.
var registered = Check{"registration", "GetInfo says name, half and v1alpha1, twice the same",
	"the host does not call a plugin of which it does not know these", register}

var bothHalves = []Check{
	{"status", "NotifyStatus is answered", "otherwise the plugin's log does not say why it was refused",
		func(t *target) {
			optional(try(t.ctx, t.quick, t.registration.NotifyStatus, &registration.Status{Version: pb.Version}))
		}},
	{"start twice", "Start succeeds, and again", "it is called first after each connection, and hosts are restarted",
		func(t *target) { t.start(); t.start() }},
}

// register connects to the server if its registration is valid.
func register(t *target) {
	t.registration = registration.NewRegistrationClient(t.dial(filepath.Base(t.socket)))
	wait, cancel := context.WithTimeout(t.ctx, connectTimeout)
	defer cancel()
	info := must(t.registration.GetInfo(wait, &registration.GetInfoRequest{}, grpc.WaitForReady(true)))
	again := call(t, t.quick, t.registration.GetInfo, &registration.GetInfoRequest{})
	switch {
	case !proto.Equal(info, again):
		fail("it says %v, then %v", info, again)
	case info.GetHalf() != registration.Half_DEVICE && info.GetHalf() != registration.Half_SCHEDULER:
		fail("the half is %s: want DEVICE or SCHEDULER", info.GetHalf())
	case !slices.Contains(info.GetSupportedVersions(), pb.Version):
		fail("supported_versions are %q: want %q among them", info.GetSupportedVersions(), pb.Version)
	}
	ensure(info.Check())
	conn := t.dial(cmp.Or(info.GetSocket(), filepath.Base(t.socket)))
	t.info, t.device, t.scheduler = info, pb.NewDeviceClient(conn), pb.NewDeviceSchedulerClient(conn)
}

// dial connects to a socket of the plugin's folder.
func (t *target) dial(name string) *grpc.ClientConn {
	path := must(filepath.Abs(filepath.Join(filepath.Dir(t.socket), name)))
	conn := must(grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials())))
	t.conns = append(t.conns, conn)
	return conn
}

// start calls the half's Start.
func (t *target) start() {
	if t.info.GetHalf() == registration.Half_SCHEDULER {
		call(t, t.slow, t.scheduler.Start, &pb.SchedulerStartRequest{})
		return
	}
	_, err := try(t.ctx, t.slow, t.device.Start, &pb.DeviceStartRequest{Node: node})
	if status.Code(err) != codes.Unimplemented {
		ensure(err)
	}
}
