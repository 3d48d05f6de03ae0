package conformance

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kubeslot/kubeslot/types/plugin/registration"
	pb "github.com/kubeslot/kubeslot/types/plugin/v1alpha1"
)

// careless gives devices to anybody, or ends when it is asked for what is not there.
type careless struct {
	pb.UnimplementedDeviceServer
	end func()
}

func (careless) Watch(_ *pb.WatchRequest, stream grpc.ServerStreamingServer[pb.NodeState]) error {
	has := map[string]int64{"resource/group/board/0/widget/0/cards": 1}
	if err := stream.Send(&pb.NodeState{Capacity: has, Allocatable: has}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

func (c careless) Allocate(_ context.Context, r *pb.DeviceAllocateRequest) (*pb.DeviceAllocateResponse, error) {
	if r.GetPod().GetRunningContainers()[r.GetContainer()] == nil {
		c.end()
	}
	return &pb.DeviceAllocateResponse{Env: map[string]string{"WIDGETS": "all"}}, nil
}

func TestCarelessDevice(t *testing.T) {
	badInput := []string{"allocate unknown container", "allocate missing device", "allocate empty request"}
	for _, dies := range []bool{false, true} {
		s := grpc.NewServer()
		end := func() {}
		if dies {
			end = s.Stop
		}
		pb.RegisterDeviceServer(s, careless{end: end})
		failed, _ := results(t, listen(t, s, registration.Half_DEVICE))
		want := append([]string{"allocate nothing"}, badInput...)
		if dies {
			want = append(want, "allocate cancelled", "held") // there is no server any more
		}
		if !slices.Equal(failed, want) {
			t.Errorf("dies: %t: failed: %q, want %q", dies, failed, want)
		}
	}
}

// forgetful is a scheduler's half that knows no sessions, guesses what it does not know, and answers nothing any
// more after a call that was cancelled.
type forgetful struct {
	pb.UnimplementedDeviceSchedulerServer
	mu     sync.Mutex
	counts map[string]int64
	stuck  bool
}

func (*forgetful) Start(context.Context, *pb.SchedulerStartRequest) (*pb.SchedulerStartResponse, error) {
	return &pb.SchedulerStartResponse{Resources: []string{"example.com/*"}}, nil
}

func (f *forgetful) Nodes(stream grpc.BidiStreamingServer[pb.NodesRequest, pb.NodesResponse]) error {
	for {
		r, err := stream.Recv()
		if err != nil {
			return nil
		}
		f.mu.Lock()
		for _, n := range r.GetNodes() {
			f.counts[n.GetName()] = n.GetCapacity()["example.com/conformance"]
		}
		f.mu.Unlock()
		if err := stream.Send(&pb.NodesResponse{Revision: r.GetRevision()}); err != nil {
			return err
		}
	}
}

func (f *forgetful) Fit(ctx context.Context, r *pb.FitRequest) (*pb.FitResponse, error) {
	time.Sleep(time.Millisecond * 5) // longer than a call that the check cancels
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stuck = f.stuck || ctx.Err() != nil
	if f.stuck {
		return nil, status.Error(codes.Internal, "stuck")
	}
	got := &pb.FitResponse{}
	for _, name := range r.GetNames() {
		got.Verdicts = append(got.Verdicts, &pb.Verdict{Fits: true, Score: float64(f.counts[name])})
	}
	for _, n := range r.GetNodes() {
		count := n.GetCapacity()["example.com/conformance"]
		got.Verdicts = append(got.Verdicts, &pb.Verdict{Fits: true, Score: float64(count)})
	}
	return got, nil
}

func TestForgetfulScheduler(t *testing.T) {
	s := grpc.NewServer()
	pb.RegisterDeviceSchedulerServer(s, &forgetful{counts: map[string]int64{}})
	failed, _ := results(t, listen(t, s, registration.Half_SCHEDULER))
	want := []string{"sessions", "node unknown", "fit cancelled", "fit 5,000 nodes", "allocate again"}
	if !slices.Equal(failed, want) {
		t.Errorf("failed: %q, want %q", failed, want)
	}
}
