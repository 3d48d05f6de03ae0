package server

import (
	"context"
	"errors"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/device"
	pb "github.com/kubeslot/kubeslot/types/plugin/v1alpha1"
)

// moody is a device whose container says what Allocate does.
type moody struct {
	startErr        error
	news, starts    int
	count           int64
	called, release chan struct{}
}

func (m *moody) New() error      { m.news++; return nil }
func (m *moody) Start() error    { m.starts++; return m.startErr }
func (m *moody) GetName() string { return "moody" }

func (m *moody) UpdateNodeInfo(n *types.NodeInfo) error {
	if m.count < 0 {
		return errors.New("the bus is down")
	}
	n.KubeCap["example.com/moody"] = m.count
	return nil
}

func (m *moody) Allocate(pod *types.PodInfo, _ *types.ContainerInfo) (
	[]device.Mount, []string, map[string]string, error) {
	for name := range pod.RunningContainers {
		switch name {
		case "panics":
			panic("lost")
		case "fails":
			return nil, nil, nil, errors.New("no such device")
		case "slow":
			close(m.called)
			<-m.release
		}
	}
	return []device.Mount{{ContainerPath: "/c", HostPath: "/h", Readonly: true}},
		[]string{"/dev/null", "vendor.com/moody=1"}, map[string]string{"K": "v"}, nil
}

func (m *moody) OwnVariables() map[string]string { return map[string]string{"MOODY": "none"} }

func allocation(container string) *pb.DeviceAllocateRequest {
	return &pb.DeviceAllocateRequest{Container: container,
		Pod: &pb.PodInfo{Name: "pod", RunningContainers: map[string]*pb.ContainerInfo{container: {}}}}
}

func TestDevice(t *testing.T) {
	m := &moody{startErr: errors.New("no driver")}
	conn, _ := serve(t, Device(m, time.Minute), t.TempDir(), "moody.sock")
	client, ctx := pb.NewDeviceClient(conn), timeout(t)
	if _, err := client.Allocate(ctx, allocation("main")); status.Code(err) != codes.FailedPrecondition {
		t.Error("Allocate before Start:", err)
	}
	for _, want := range []int{1, 2} {
		_, err := client.Start(ctx, &pb.DeviceStartRequest{})
		if status.Convert(err).Message() != "no driver" || m.news != 1 || m.starts != want {
			t.Error(err, m.news, m.starts)
		}
	}
	m.startErr = nil
	for range 2 { // of a kubecri that is restarted, too
		if _, err := client.Start(ctx, &pb.DeviceStartRequest{}); err != nil || m.starts != 3 {
			t.Error(err, m.starts)
		}
	}
	variables, err := client.OwnVariables(ctx, &pb.OwnVariablesRequest{})
	if err != nil || !maps.Equal(variables.GetVariables(), m.OwnVariables()) {
		t.Error(variables, err)
	}
	for container, want := range map[string]codes.Code{"panics": codes.Internal, "fails": codes.Unknown} {
		if _, err := client.Allocate(ctx, allocation(container)); status.Code(err) != want {
			t.Error(container, err)
		}
	}
	unknown := allocation("main")
	unknown.Container = "other"
	if _, err := client.Allocate(ctx, unknown); status.Code(err) != codes.InvalidArgument {
		t.Error(err)
	}
	got, err := client.Allocate(ctx, allocation("main"))
	if err != nil || got.GetMounts()[0].GetHostPath() != "/h" || got.GetMounts()[0].GetContainerPath() != "/c" ||
		!got.GetMounts()[0].GetReadOnly() || got.GetDeviceNodes()[0] != "/dev/null" ||
		got.GetCdiDevices()[0] != "vendor.com/moody=1" || got.GetEnv()["K"] != "v" {
		t.Error(got, err)
	}
}

// states is the server's end of a Watch.
type states struct {
	grpc.ServerStream
	ctx  context.Context
	sent chan int64
}

func (s states) Context() context.Context { return s.ctx }

func (s states) Send(n *pb.NodeState) error {
	s.sent <- n.GetKubeCapacity()["example.com/moody"]
	return nil
}

// A state is sent at once, and again when it has changed. What was sent holds while the device cannot say what it
// has, as that of a .so file does; who has not said anything yet ends the stream, so that the host sees why.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &moody{count: 1}
		s := &deviceService{device: m, started: true, interval: time.Minute}
		stream, ended := states{ctx: t.Context(), sent: make(chan int64, 10)}, make(chan error, 1)
		begin := time.Now()
		go func() { ended <- s.Watch(nil, stream) }()
		if n := <-stream.sent; n != 1 || time.Since(begin) != 0 {
			t.Error(n, time.Since(begin))
		}
		time.Sleep(10*time.Minute + time.Second) // a look each minute, of which none sends
		s.mu.Lock()
		m.count = 2
		s.mu.Unlock()
		if n := <-stream.sent; n != 2 || len(stream.sent) != 0 || time.Since(begin) != 11*time.Minute {
			t.Error(n, len(stream.sent), time.Since(begin))
		}
		set := func(n int64) {
			s.mu.Lock()
			m.count = n
			s.mu.Unlock()
		}
		set(-1)
		time.Sleep(10 * time.Minute)
		set(3)
		if n := <-stream.sent; n != 3 || len(ended) != 0 {
			t.Error(n, len(ended))
		}
		set(-1)
		if err := s.Watch(nil, stream); err == nil || err.Error() != "the bus is down" {
			t.Error(err)
		}
	})
}
