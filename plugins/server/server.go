// Package server serves one half of a plugin over gRPC, on a unix socket: a plugin that
// implements device.Device or devicescheduler.DeviceScheduler becomes a process of its own, a
// static binary that is restarted alone. plugins/example/server is one.
//
//   - server.go: the socket, the registration, and the end
//   - device.go, scheduler.go: the services of the protocol on the two interfaces
//
// It imports nothing but the types module and grpc, and the package that makes the socket.
package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime/debug"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kubeslot/kubeslot/discovery/unixsocket"
	"github.com/kubeslot/kubeslot/types/plugin/registration"
	"github.com/kubeslot/kubeslot/types/plugin/v1alpha1"
)

const (
	// maxServers is how many processes may serve one half in one folder: the plugin and its
	// update, and one more that has not ended yet.
	maxServers = 3
	// stopTimeout is how long calls in flight have to end, less than the grace period of pods,
	// 30 s.
	stopTimeout = 5 * time.Second
)

// Plugin is one half of a plugin. Device and Scheduler make one of KubeDevice's interfaces;
// who implements the protocol itself fills it in.
type Plugin struct {
	Name    string // as in registration.PluginInfo
	Half    registration.Half
	Version string // the plugin's own, for logs; may be empty
	// Register registers the half's service of v1alpha1.
	Register func(grpc.ServiceRegistrar)
}

// Serve serves the plugin on a socket <name>.sock in the folder, or in the half's own if that is
// empty, until ctx is done; then it ends the calls in flight and removes the socket. A socket that
// a dead process left is replaced. If another process serves it, an older version say, the socket
// is <name>-2.sock.
func (p Plugin) Serve(ctx context.Context, folder string) error {
	listener, err := p.listen(folder)
	if err != nil {
		return fmt.Errorf("plugin %s: %w", p.Name, err)
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, request any, info *grpc.UnaryServerInfo,
		handler grpc.UnaryHandler) (response any, err error) {
		defer recovered(info.FullMethod, &err)
		return handler(ctx, request)
	}), grpc.StreamInterceptor(func(service any, stream grpc.ServerStream, info *grpc.StreamServerInfo,
		handler grpc.StreamHandler) (err error) {
		defer recovered(info.FullMethod, &err)
		return handler(service, stream)
	}))
	registration.RegisterRegistrationServer(server, registrar{plugin: p})
	p.Register(server)
	slog.Info("Serving the plugin", "plugin", p.Name, "half", p.Half, "socket", listener.Addr())
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err = <-served:
		err = fmt.Errorf("plugin %s: %w", p.Name, err)
	case <-ctx.Done():
	}
	listener.Remove() // so that nobody connects any more
	late := time.AfterFunc(stopTimeout, server.Stop)
	defer late.Stop()
	server.GracefulStop()
	return err
}

func (p Plugin) listen(folder string) (*unixsocket.Listener, error) {
	switch p.Half {
	case registration.Half_DEVICE:
		folder = cmp.Or(folder, registration.DevicesDirectory)
	case registration.Half_SCHEDULER:
		folder = cmp.Or(folder, registration.SchedulersDirectory)
	default:
		return nil, fmt.Errorf("Half is %s: want DEVICE or SCHEDULER", p.Half)
	}
	listener, err := unixsocket.Listen(filepath.Join(folder, p.Name+".sock"))
	for n := 2; errors.Is(err, unixsocket.ErrServed) && n <= maxServers; n++ {
		listener, err = unixsocket.Listen(filepath.Join(folder, fmt.Sprintf("%s-%d.sock", p.Name, n)))
	}
	return listener, err
}

// recovered makes a panic of the plugin the call's error: other calls go on.
func recovered(method string, err *error) {
	if v := recover(); v != nil {
		slog.Error("The plugin has a bug", "method", method, "panic", v, "stack", string(debug.Stack()))
		*err = status.Errorf(codes.Internal, "panic: %v", v)
	}
}

// registrar says what the plugin is.
type registrar struct {
	registration.UnimplementedRegistrationServer
	plugin Plugin
}

// GetInfo implements registration.RegistrationServer.
func (r registrar) GetInfo(context.Context, *registration.GetInfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Name: r.plugin.Name, Half: r.plugin.Half, Version: r.plugin.Version,
		SupportedVersions: []string{v1alpha1.Version}}, nil
}

// NotifyStatus logs what became of the registration.
func (r registrar) NotifyStatus(_ context.Context, s *registration.Status) (*registration.StatusResponse, error) {
	if s.GetError() != "" {
		slog.Error("The plugin was refused", "plugin", r.plugin.Name, "err", s.GetError())
	} else {
		slog.Info("The plugin was registered", "plugin", r.plugin.Name, "version", s.GetVersion())
	}
	return &registration.StatusResponse{}, nil
}
