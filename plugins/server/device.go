package server

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/device"
	"github.com/kubeslot/kubeslot/types/plugin/registration"
	pb "github.com/kubeslot/kubeslot/types/plugin/v1alpha1"
)

// Device is the node's half of a plugin. What the node has is looked up each interval, and sent when
// it has changed. The methods of d are never called concurrently, Start until it has succeeded once.
func Device(d device.Device, interval time.Duration) Plugin {
	return Plugin{Name: d.GetName(), Half: registration.Half_DEVICE, Register: func(r grpc.ServiceRegistrar) {
		pb.RegisterDeviceServer(r, &deviceService{device: d, prepare: sync.OnceValue(d.New), interval: interval})
	}}
}

var errNotStarted = status.Error(codes.FailedPrecondition, "not started: call Start first")

type deviceService struct {
	pb.UnimplementedDeviceServer
	device   device.Device
	prepare  func() error // New
	interval time.Duration

	mu      sync.Mutex // held by each call of the device
	started bool
}

// Start implements pb.DeviceServer.
func (s *deviceService) Start(context.Context, *pb.DeviceStartRequest) (*pb.DeviceStartResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.prepare(); err != nil {
		return nil, err
	}
	if !s.started {
		if err := s.device.Start(); err != nil {
			return nil, err
		}
		s.started = true
	}
	return &pb.DeviceStartResponse{}, nil
}

// OwnVariables implements pb.DeviceServer.
func (s *deviceService) OwnVariables(context.Context, *pb.OwnVariablesRequest) (*pb.OwnVariablesResponse, error) {
	owner, ok := s.device.(device.VariableOwner)
	if !ok {
		return &pb.OwnVariablesResponse{}, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return &pb.OwnVariablesResponse{Variables: owner.OwnVariables()}, nil
}

// Watch implements pb.DeviceServer.
func (s *deviceService) Watch(_ *pb.WatchRequest, stream grpc.ServerStreamingServer[pb.NodeState]) error {
	ticker := time.NewTicker(s.interval)
	defer ticker.Stop()
	var sent *pb.NodeState
	for {
		state, err := s.state()
		switch {
		case err != nil && sent == nil:
			return err
		case err != nil:
			slog.Error("The plugin cannot say what the node has; what it said last holds", "err", err)
		case sent == nil || !proto.Equal(state, sent):
			if err := stream.Send(state); err != nil {
				return err
			}
			sent = state
		}
		select {
		case <-ticker.C:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

func (s *deviceService) state() (*pb.NodeState, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.started {
		return nil, errNotStarted
	}
	node := types.NewNodeInfo()
	if err := s.device.UpdateNodeInfo(node); err != nil {
		return nil, err
	}
	return pb.NodeStateOf(node), nil
}

// Allocate implements pb.DeviceServer.
func (s *deviceService) Allocate(_ context.Context, r *pb.DeviceAllocateRequest) (*pb.DeviceAllocateResponse, error) {
	pod := r.GetPod().Info()
	container := pod.GetContainerInPod(r.GetContainer())
	if container == nil {
		return nil, status.Errorf(codes.InvalidArgument, "pod %s has no container %q", pod.Name, r.GetContainer())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.started {
		return nil, errNotStarted
	}
	mounts, devices, env, err := s.device.Allocate(pod, container)
	if err != nil {
		return nil, err
	}
	response := &pb.DeviceAllocateResponse{Env: env}
	for _, m := range mounts {
		response.Mounts = append(response.Mounts,
			&pb.Mount{ContainerPath: m.ContainerPath, HostPath: m.HostPath, ReadOnly: m.Readonly})
	}
	for _, d := range devices {
		if strings.HasPrefix(d, "/") {
			response.DeviceNodes = append(response.DeviceNodes, d)
		} else {
			response.CdiDevices = append(response.CdiDevices, d)
		}
	}
	return response, nil
}
