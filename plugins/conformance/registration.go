package conformance

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/kubeslot/kubeslot/types/plugin/registration"
	pb "github.com/kubeslot/kubeslot/types/plugin/v1alpha1"
)

// registered is the first check. The others need what it finds out.
var registered = Check{"registration", "GetInfo says name, half and v1alpha1, twice the same",
	"the host does not call a plugin of which it does not know these", register}

var bothHalves = []Check{
	{"status", "NotifyStatus is answered", "otherwise the plugin's log does not say why it was refused", notifyStatus},
	{"start twice", "Start succeeds, and again", "it is called first after each connection, and hosts are restarted",
		startTwice},
}

// register connects to the server if its registration is valid.
func register(ctx context.Context, t *target) error {
	conn, err := t.dial(t.socket)
	if err != nil {
		return err
	}
	t.registration = registration.NewRegistrationClient(conn)
	wait, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	info, err := t.registration.GetInfo(wait, &registration.GetInfoRequest{}, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	switch again, err := call(ctx, quick, t.registration.GetInfo, &registration.GetInfoRequest{}); {
	case err != nil:
		return fmt.Errorf("the second time: %w", err)
	case !proto.Equal(info, again):
		return fmt.Errorf("it says %v, then %v", info, again)
	case info.GetHalf() != registration.Half_DEVICE && info.GetHalf() != registration.Half_SCHEDULER:
		return fmt.Errorf("the half is %s: want DEVICE or SCHEDULER", info.GetHalf())
	case !slices.Contains(info.GetSupportedVersions(), pb.Version):
		return fmt.Errorf("supported_versions are %q: want %q among them", info.GetSupportedVersions(), pb.Version)
	}
	if err := info.Check(); err != nil {
		return err
	}
	if info.GetSocket() != "" {
		if conn, err = t.dial(filepath.Join(filepath.Dir(t.socket), info.GetSocket())); err != nil {
			return err
		}
	}
	t.info, t.device, t.scheduler = info, pb.NewDeviceClient(conn), pb.NewDeviceSchedulerClient(conn)
	return nil
}

func notifyStatus(ctx context.Context, t *target) error {
	_, err := call(ctx, quick, t.registration.NotifyStatus, &registration.Status{Version: pb.Version})
	if status.Code(err) == codes.Unimplemented {
		return notImplemented
	}
	return err
}

func startTwice(ctx context.Context, t *target) error {
	if err := t.start(ctx); err != nil {
		return err
	}
	return t.start(ctx)
}
