package devicepluginmode

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/klog/v2"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/kubeslot/kubeslot/discovery/unixsocket"
	"github.com/kubeslot/kubeslot/kubecri/devicepluginmode/deviceids"
	"github.com/kubeslot/kubeslot/kubecri/metrics"
	"github.com/kubeslot/kubeslot/kubecri/nodemode"
	"github.com/kubeslot/kubeslot/serve"
	"github.com/kubeslot/kubeslot/types/assignment"
)

// bufferSize is that of a connection's buffers, in bytes. A node may have thousands of
// plugins, and gRPC's default is 32 kB for each direction.
const bufferSize = 4 << 10

const (
	// maxConnections of one plugin's socket, and maxStreams of one connection, are the most
	// at once. The kubelet has one connection, and two while it restarts.
	maxConnections = 8
	maxStreams     = 64
)

// options are what the kubelet is to know of all our plugins.
var options = &pluginapi.DevicePluginOptions{GetPreferredAllocationAvailable: true}

// server is the plugin of one resource. The kubelet's protocol does not say which resource
// a call is for, so each has a socket of its own.
type server struct {
	pluginapi.UnimplementedDevicePluginServer
	plugins  *Plugins
	key      key
	resource string
	socket   string // path
	grpc     *grpc.Server

	// These are of attend alone. bound and registered: the socket that is served, and the
	// kubelet's where the plugin is registered; nil for none.
	bound, registered os.FileInfo
	listener          net.Listener // of bound, or of the socket before it; nil before the first

	mu      sync.Mutex
	news    chan struct{} // closed when the ids may have changed
	ended   chan struct{} // closed when the plugin is to go
	streams int           // of ListAndWatch
	amount  nodemode.Amount
	lost    bool // the kubelet has ended the last stream
}

var _ pluginapi.DevicePluginServer = (*server)(nil)

func newServer(p *Plugins, k key) *server {
	s := &server{plugins: p, key: k, resource: assignment.ResourcePrefix + k.name(), socket: socketOf(p.Directory, k.name()),
		grpc: grpc.NewServer(grpc.ReadBufferSize(bufferSize), grpc.WriteBufferSize(bufferSize),
			grpc.ConnectionTimeout(serve.HandshakeTimeout), grpc.MaxConcurrentStreams(maxStreams)),
		news: make(chan struct{}), ended: make(chan struct{})}
	pluginapi.RegisterDevicePluginServer(s.grpc, s)
	return s
}

// serve listens at the socket, which is made anew.
func (s *server) serve(ctx context.Context) error {
	if err := os.Remove(s.socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if s.listener != nil { // of the socket that the kubelet has removed
		_ = s.listener.Close()
	}
	listener, err := unixsocket.Listen(s.socket)
	if err != nil {
		return err
	}
	if s.bound, err = os.Lstat(s.socket); err != nil {
		return errors.Join(err, listener.Close())
	}
	s.listener = listener
	bounded := serve.Bounded(ctx, listener, serve.Bounds{Server: "device-plugin", Connections: maxConnections, Greeting: serve.HTTP2Greeting,
		Dropped: func() { s.plugins.Metrics.ConnectionDropped(metrics.ServerDevicePlugin) }})
	s.plugins.running.Go(func() {
		if err := s.grpc.Serve(bounded); err != nil && !errors.Is(err, grpc.ErrServerStopped) && !errors.Is(err, net.ErrClosed) {
			klog.FromContext(ctx).Error(err, "A device plugin's socket is served no more", "resource", s.resource, "socket", s.socket)
		}
	})
	return nil
}

// changed has the ids listed anew.
func (s *server) changed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.news)
	s.news = make(chan struct{})
}

func (s *server) nextNews() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.news
}

// end tells the kubelet that there are no ids any more, so that the resource's amount
// becomes 0, and ends the plugin.
func (s *server) end(ctx context.Context) {
	close(s.ended)
	s.plugins.running.Go(func() {
		timer := time.AfterFunc(time.Second, s.grpc.Stop)
		defer timer.Stop()
		s.grpc.GracefulStop()
		s.plugins.attending.Lock()
		defer s.plugins.attending.Unlock()
		if now, err := os.Lstat(s.socket); err == nil && same(s.bound, now) {
			if err := os.Remove(s.socket); err != nil {
				klog.FromContext(ctx).Error(err, "A socket is left over", "resource", s.resource)
			}
		}
	})
	klog.FromContext(ctx).Info("Ended the device plugin of a resource that is gone", "resource", s.resource)
}

// GetDevicePluginOptions implements pluginapi.DevicePluginServer.
func (s *server) GetDevicePluginOptions(context.Context, *pluginapi.Empty) (*pluginapi.DevicePluginOptions, error) {
	return options, nil
}

// ListAndWatch implements pluginapi.DevicePluginServer: it sends the ids now and whenever
// they change.
func (s *server) ListAndWatch(_ *pluginapi.Empty, stream grpc.ServerStreamingServer[pluginapi.ListAndWatchResponse]) error {
	s.began()
	defer s.over()
	var last []deviceids.Device
	for first := true; ; first = false {
		news := s.nextNews()
		now := s.list()
		if first || !slices.Equal(now, last) {
			response, healthy := response(now)
			if err := stream.Send(response); err != nil {
				return err
			}
			s.listed(healthy, len(now)-healthy)
			last = now
		}
		select {
		case <-news:
		case <-s.ended:
			s.plugins.Metrics.DevicePluginEnded(s.resource)
			return stream.Send(&pluginapi.ListAndWatchResponse{})
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

// listed notes what the kubelet has been told.
func (s *server) listed(healthy, unhealthy int) {
	s.plugins.Metrics.DevicePluginListed(s.resource, healthy, unhealthy)
	s.mu.Lock()
	s.amount = nodemode.Amount{Listed: true, Capacity: healthy + unhealthy, Allocatable: healthy}
	s.mu.Unlock()
	if s.plugins.ListedChanged != nil {
		s.plugins.ListedChanged()
	}
}

func (s *server) list() []deviceids.Device {
	if r := s.plugins.resource(s.key); r != nil {
		return r.List()
	}
	return nil
}

// began and over count streams. A kubelet that ends the last one and does not come back
// has to be told of the plugin again.
func (s *server) began() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams++
	s.lost = false
}

func (s *server) over() {
	s.mu.Lock()
	s.streams--
	last := s.streams == 0
	if last {
		s.amount.Listed = false
	}
	s.mu.Unlock()
	if !last {
		return
	}
	time.AfterFunc(registerAgain, func() {
		s.mu.Lock()
		s.lost = s.streams == 0
		s.mu.Unlock()
		s.plugins.attention.Send()
	})
}

func (s *server) wasLost() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost
}

// response is what the kubelet is sent, and how many of the ids are healthy.
func response(ids []deviceids.Device) (r *pluginapi.ListAndWatchResponse, healthy int) {
	r = &pluginapi.ListAndWatchResponse{}
	for _, d := range ids {
		health := pluginapi.Unhealthy
		if d.Healthy {
			health = pluginapi.Healthy
			healthy++
		}
		r.Devices = append(r.Devices, &pluginapi.Device{ID: d.ID, Health: health})
	}
	return r, healthy
}

// GetPreferredAllocation implements pluginapi.DevicePluginServer. The kubelet calls it
// right before Allocate, for one container.
func (s *server) GetPreferredAllocation(ctx context.Context, r *pluginapi.PreferredAllocationRequest) (*pluginapi.PreferredAllocationResponse, error) {
	response := &pluginapi.PreferredAllocationResponse{}
	for _, c := range r.ContainerRequests {
		ids, err := s.plugins.prefer(s.context(ctx), s.key, c.AvailableDeviceIDs, c.MustIncludeDeviceIDs, int(c.AllocationSize))
		if err != nil {
			return nil, s.refuse(ctx, err)
		}
		response.ContainerResponses = append(response.ContainerResponses, &pluginapi.ContainerPreferredAllocationResponse{DeviceIDs: ids})
	}
	return response, nil
}

// Allocate implements pluginapi.DevicePluginServer: one response for each container, with
// what all of its ids bring.
func (s *server) Allocate(ctx context.Context, r *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	begin := time.Now()
	response := &pluginapi.AllocateResponse{}
	for _, c := range r.ContainerRequests {
		answer, err := s.plugins.allocate(s.context(ctx), s.key, c.DevicesIds)
		if err != nil {
			return nil, s.refuse(ctx, err)
		}
		response.ContainerResponses = append(response.ContainerResponses, answer)
	}
	s.plugins.Metrics.DevicePluginAllocated(true, time.Since(begin))
	s.plugins.claims.Resync() // so that claims soon say whose they are
	return response, nil
}

// refuse makes an error of the kubelet's call. The pod fails by it, with the message in
// its status.
func (s *server) refuse(ctx context.Context, err error) error {
	s.plugins.Metrics.DevicePluginAllocated(false, 0)
	klog.FromContext(s.context(ctx)).Info("Warning: a container does not get its devices, and its pod fails", "resource", s.resource, "reason", err)
	code := codes.FailedPrecondition
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		code = codes.Unavailable
	}
	return status.Errorf(code, "kubecri gives out no %s: %v", s.resource, err)
}

// context has the logger that the plugins run with.
func (s *server) context(ctx context.Context) context.Context {
	return klog.NewContext(ctx, s.plugins.logger)
}
