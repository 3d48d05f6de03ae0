package standalone

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/discovery"
	pb "github.com/kubeslot/kubeslot/types/discovery/v0"
)

const (
	// maxWarnings is how many warnings a stream carries.
	maxWarnings = 16

	// maxListBytes, with room for warnings, and maxParts are what kubecri takes of a list:
	// devices, their ids, properties and paths.
	maxListBytes = maxMessageBytes - 64<<10
	maxParts     = 500_000
)

// service is the protocol's DiscoveryHandler on a handler of this process.
type service struct {
	pb.UnimplementedDiscoveryHandlerServer
	handler discovery.Sharer
	logger  klog.Logger
	dropped func() // called when a stream ended that the handler did not end
}

// NewService returns the protocol's DiscoveryHandler on a handler, for who serves it elsewhere than
// Serve does.
func NewService(handler discovery.Sharer, logger klog.Logger) pb.DiscoveryHandlerServer {
	return &service{handler: handler, logger: logger, dropped: func() {}}
}

// Discover runs the handler until the agent cancels the stream. Details that the
// handler refuses end it with InvalidArgument, other failures with Unavailable, and
// the agent calls again.
func (s *service) Discover(request *pb.DiscoverRequest, stream grpc.ServerStreamingServer[pb.DiscoverResponse]) error {
	ctx, fail := context.WithCancelCause(klog.NewContext(stream.Context(), s.logger))
	defer fail(nil)
	s.logger.Info("Discovery starts")
	reports := &reports{send: stream.Send, fail: fail, shared: s.handler.Shared(), logger: s.logger}
	err := s.discover(ctx, discovery.Request{
		Details:    request.GetDiscoveryDetails(),
		Properties: properties(request),
		Warn:       reports.warn,
	}, reports.report)

	switch {
	case stream.Context().Err() != nil:
		s.logger.Info("Discovery ends: the agent wants no more, or is gone")
		s.dropped()
		return status.FromContextError(stream.Context().Err()).Err()
	case ctx.Err() != nil:
		err = context.Cause(ctx)
		s.logger.Error(err, "Cannot send devices")
		return status.Error(codes.Internal, err.Error())
	case errors.Is(err, discovery.ErrInvalid):
		s.logger.Error(err, "Discovery cannot start")
		return status.Error(codes.InvalidArgument, err.Error())
	default:
		s.logger.Error(err, "Discovery failed")
		return status.Error(codes.Unavailable, err.Error())
	}
}

// discover calls the handler and returns an error in any case. A panic is one: other
// Configurations' streams go on.
func (s *service) discover(ctx context.Context, request discovery.Request, report func(discovery.Result)) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
			s.logger.Error(err, "The discovery handler has a bug", "stack", string(debug.Stack()))
		}
	}()
	if err := s.handler.Discover(ctx, request, report); err != nil {
		return err
	}
	return errors.New("ended, though it should go on")
}

// properties are the discoveryProperties: nil for one without a value.
func properties(request *pb.DiscoverRequest) map[string][]byte {
	all := make(map[string][]byte, len(request.GetDiscoveryProperties()))
	for name, value := range request.GetDiscoveryProperties() {
		all[name] = value.GetVec()
	}
	return all
}

// reports sends what one Discover reports. Safe for concurrent use.
type reports struct {
	send   func(*pb.DiscoverResponse) error
	fail   func(error) // ends the stream
	shared bool        // as registered
	logger klog.Logger

	mu       sync.Mutex
	last     *pb.DiscoverResponse // nil before the first report
	warnings []string             // all that were told so far
	unsent   []string
}

func (r *reports) report(result discovery.Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.logger.Info("Found devices", "count", len(result.Devices), "shared", result.Shared)
	devices := make([]*pb.Device, 0, len(result.Devices))
	bytes, parts := 0, 0
	for _, d := range result.Devices {
		device := encode(d)
		encoded, err := proto.Marshal(device)
		if err != nil { // one string that is not UTF-8 would keep all devices from being sent
			r.add(fmt.Sprintf("device %.64q is left out: its id, a property or a path is not UTF-8", d.ID))
			continue
		}
		bytes += protowire.SizeTag(1) + protowire.SizeBytes(len(encoded))
		parts += 2 + len(d.Properties) + len(d.Mounts) + len(d.DeviceSpecs)
		if bytes > maxListBytes || parts > maxParts { // and so would a list that is too long
			r.add(fmt.Sprintf("devices are left out: an agent takes a list of %d MiB at most, of %d devices, "+
				"properties and paths", maxMessageBytes>>20, maxParts))
			break
		}
		devices = append(devices, device)
	}
	r.last = &pb.DiscoverResponse{Devices: devices}
	if result.Shared != r.shared {
		r.last.Shared = &result.Shared
	}
	r.flush()
}

// warn tells the agent with the next report, which is the last one again if there
// was one: later ones may never come.
func (r *reports) warn(message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.add(strings.ToValidUTF8(message, "?")) && r.last != nil {
		r.flush()
	}
}

// add reports whether the warning is a new one. r.mu must be held.
func (r *reports) add(warning string) bool {
	if slices.Contains(r.warnings, warning) || len(r.warnings) == maxWarnings {
		return false
	}
	r.logger.Info("Warning", "message", warning)
	r.warnings, r.unsent = append(r.warnings, warning), append(r.unsent, warning)
	return true
}

// flush sends the last report. r.mu must be held.
func (r *reports) flush() {
	err := r.send(&pb.DiscoverResponse{Devices: r.last.Devices, Shared: r.last.Shared, Warnings: r.unsent})
	if err != nil {
		r.fail(fmt.Errorf("send %d devices: %w", len(r.last.Devices), err))
		return
	}
	r.unsent = nil
}

func encode(d discovery.Device) *pb.Device {
	device := &pb.Device{Id: d.ID, Properties: d.Properties}
	for _, m := range d.Mounts {
		device.Mounts = append(device.Mounts, &pb.Mount{ContainerPath: m.ContainerPath, HostPath: m.HostPath, ReadOnly: m.ReadOnly})
	}
	for _, s := range d.DeviceSpecs {
		device.DeviceSpecs = append(device.DeviceSpecs, &pb.DeviceSpec{ContainerPath: s.ContainerPath, HostPath: s.HostPath, Permissions: s.Permissions})
	}
	return device
}
