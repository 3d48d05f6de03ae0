package remote

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/kubeslot/kubeslot/test/await"
	"github.com/kubeslot/kubeslot/types/plugin/registration"
	pb "github.com/kubeslot/kubeslot/types/plugin/v1alpha1"
)

// tempFolder is one whose paths are short enough for sockets.
func tempFolder(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "remote")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	return folder
}

// hold connects, and is ready at once.
func hold(ctx context.Context, _ *Plugin, _ *Server, ready func()) error {
	ready()
	<-ctx.Done()
	return ctx.Err()
}

// setup is a Config of tests; each field may be missing.
type setup struct {
	folder   string
	half     registration.Half
	policies map[string]string
	added    func(*Plugin)
	connect  func(ctx context.Context, p *Plugin, s *Server, ready func()) error
	changed  func(*Plugin)
	retry    time.Duration // 10 ms if it is 0
	timeout  time.Duration // await.Patience if it is 0
}

func (s setup) config(t *testing.T) Config {
	t.Helper()
	if s.folder == "" {
		s.folder = tempFolder(t)
	}
	if s.half == registration.Half_UNKNOWN {
		s.half = registration.Half_DEVICE
	}
	options := Options{Sockets: s.folder, Policies: s.policies, Timeout: cmp.Or(s.timeout, await.Patience)}
	return Config{Options: options, Half: s.half, Added: func(p *Plugin) Handler {
		if s.added != nil {
			s.added(p)
		}
		return &handler{setup: s, plugin: p}
	}}
}

// handler calls a setup's functions.
type handler struct {
	setup
	plugin *Plugin
}

func (h *handler) Connect(ctx context.Context, s *Server, ready func()) error {
	if h.connect == nil {
		return hold(ctx, h.plugin, s, ready)
	}
	return h.connect(ctx, h.plugin, s, ready)
}

func (h *handler) Changed() {
	if h.changed != nil {
		h.changed(h.plugin)
	}
}

// run runs Sockets.
func run(t *testing.T, with setup) *Sockets {
	t.Helper()
	s, _ := runLogged(t, with)
	return s
}

// runLogged returns also what has been logged.
func runLogged(t *testing.T, with setup) (s *Sockets, log func() string) {
	t.Helper()
	var err error
	s, err = New(with.config(t))
	if err != nil {
		t.Fatal(err)
	}
	s.look, s.retry.Duration = 10*time.Millisecond, cmp.Or(with.retry, 10*time.Millisecond)
	logger := ktesting.NewLogger(ktesting.NopTL{}, ktesting.NewConfig(ktesting.BufferLogs(true)))
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), logger))
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return s, logger.GetSink().(ktesting.Underlier).GetBuffer().String
}

// awaitLog waits until the text is logged.
func awaitLog(t *testing.T, log func() string, text string) {
	t.Helper()
	await.That(t, "the log to say "+text, func() (bool, string) {
		logged := log()
		return strings.Contains(strings.ReplaceAll(logged, `\"`, `"`), text), fmt.Sprintf("%.5000s", logged)
	})
}

// plugin is a server of the protocol. The zero value is a device half named "widget", whose answers
// have its mark.
type plugin struct {
	registration.UnimplementedRegistrationServer
	pb.UnimplementedDeviceServer
	mark     string
	info     *registration.PluginInfo
	allocate func(context.Context) (*pb.DeviceAllocateResponse, error)
	statuses chan *registration.Status
	deaf     bool // NotifyStatus does not answer
}

func (p *plugin) GetInfo(context.Context, *registration.GetInfoRequest) (*registration.PluginInfo, error) {
	if p.info != nil {
		return p.info, nil
	}
	return widget(), nil
}

func widget() *registration.PluginInfo {
	return &registration.PluginInfo{Name: "widget", Half: registration.Half_DEVICE,
		SupportedVersions: []string{"v1alpha1"}}
}

func (p *plugin) NotifyStatus(ctx context.Context, s *registration.Status) (*registration.StatusResponse, error) {
	if p.deaf {
		<-ctx.Done()
	}
	select {
	case p.statuses <- s:
	default:
	}
	return &registration.StatusResponse{}, nil
}

func (p *plugin) Allocate(ctx context.Context, _ *pb.DeviceAllocateRequest) (*pb.DeviceAllocateResponse, error) {
	if p.allocate != nil {
		return p.allocate(ctx)
	}
	return &pb.DeviceAllocateResponse{DeviceNodes: []string{p.mark}}, nil
}

// serve serves the plugin on a socket of the folder, which is made anew.
func serve(t *testing.T, s *Sockets, name string, p *plugin) *grpc.Server {
	t.Helper()
	server := grpc.NewServer()
	registration.RegisterRegistrationServer(server, p)
	pb.RegisterDeviceServer(server, p)
	go server.Serve(listen(t, s, name))
	t.Cleanup(server.Stop)
	return server
}

// listen replaces the socket in one step, as a careful plugin does.
func listen(t *testing.T, s *Sockets, name string) net.Listener {
	t.Helper()
	path := filepath.Join(s.config.Sockets, name)
	l, err := net.Listen("unix", path+".new")
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	return l
}

// ask calls the plugin's Allocate, and returns the mark in its answer.
func ask(p *Plugin, timeout time.Duration) (mark string, err error) {
	allocate := func(ctx context.Context, s *Server) error {
		answer, err := pb.NewDeviceClient(s).Allocate(ctx, &pb.DeviceAllocateRequest{})
		if len(answer.GetDeviceNodes()) > 0 {
			mark = answer.GetDeviceNodes()[0]
		}
		return err
	}
	err = p.Call(context.Background(), timeout, "Allocate", allocate)
	return mark, err
}

// awaitReady waits until the plugin is ready.
func awaitReady(t *testing.T, s *Sockets, name string) *Plugin {
	t.Helper()
	var found *Plugin
	await.That(t, "plugin "+name+" to be ready", func() error {
		for _, p := range s.Plugins() {
			if p.GetName() == name {
				found = p
				return p.Away()
			}
		}
		return errEnded
	})
	return found
}
