package remote

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kubeslot/kubeslot/test/await"
	"github.com/kubeslot/kubeslot/types/contain"
	pb "github.com/kubeslot/kubeslot/types/plugin/v1alpha1"
)

func TestCallErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		allocate func(context.Context) (*pb.DeviceAllocateResponse, error)
		timeout  time.Duration
		want     string
		code     codes.Code
		is       error
	}{
		"of its own": {allocate: fails(codes.NotFound, "no\nwidget 3"), want: "NotFound: no widget 3",
			code: codes.NotFound},
		"not ready": {allocate: fails(codes.Unavailable, "no bus"), want: "Unavailable: no bus",
			code: codes.Unavailable},
		"long": {allocate: fails(codes.Internal, strings.Repeat("x", 8<<10)), want: "xxx…", code: codes.Internal},
		"longer than headers may be": {allocate: fails(codes.Internal, strings.Repeat("x", 1<<20)),
			want: "failed in Allocate", code: codes.Internal},
		"late": {timeout: 50 * time.Millisecond, allocate: hangs,
			want: "did not return in time: 50ms", code: codes.Unknown, is: contain.ErrTimeout},
		"late by the server's clock": {timeout: time.Second, allocate: early,
			want: "did not return in time: 1s", code: codes.Unknown, is: contain.ErrTimeout},
		"a deadline of its own": {allocate: fails(codes.DeadlineExceeded, "no answer of the bus"),
			want: "DeadlineExceeded: no answer of the bus", code: codes.DeadlineExceeded},
		"of 100 MB": {allocate: func(context.Context) (*pb.DeviceAllocateResponse, error) {
			return &pb.DeviceAllocateResponse{DeviceNodes: []string{strings.Repeat("x", 100<<20)}}, nil
		}, want: "ResourceExhausted: grpc: received message larger than max", code: codes.ResourceExhausted},
		"of many mounts": {allocate: func(context.Context) (*pb.DeviceAllocateResponse, error) {
			return &pb.DeviceAllocateResponse{Mounts: make([]*pb.Mount, 500_000)}, nil
		}, want: "500000 messages are in it, of 32768 that may be", code: codes.Internal},
	} {
		t.Run(name, func(t *testing.T) {
			s := run(t, setup{})
			serve(t, s, "a.sock", &plugin{allocate: tc.allocate})
			p := awaitReady(t, s, "widget")
			if tc.timeout == 0 {
				tc.timeout = await.Patience
			}
			_, err := ask(p, tc.timeout)
			if err == nil || !strings.HasPrefix(err.Error(), `plugin "widget" failed in Allocate: `) ||
				!strings.Contains(err.Error(), tc.want) {
				t.Fatalf("Call() = %.300v, want %s", err, tc.want)
			}
			if status.Code(err) != tc.code || tc.is != nil && !errors.Is(err, tc.is) ||
				len(err.Error()) > 2*maxErrorBytes ||
				strings.Contains(err.Error(), "\n") {
				t.Errorf("Call() = %q of code %s", err, status.Code(err))
			}
			if err := p.Away(); err != nil {
				t.Errorf("Away() = %v", err)
			}
		})
	}
}

func fails(code codes.Code, text string) func(context.Context) (*pb.DeviceAllocateResponse, error) {
	return func(context.Context) (*pb.DeviceAllocateResponse, error) { return nil, status.Error(code, text) }
}

// early gives up before the caller does, as a server may whose clock is ahead.
func early(ctx context.Context) (*pb.DeviceAllocateResponse, error) {
	due, _ := ctx.Deadline()
	<-time.After(time.Until(due) * 3 / 4)
	return nil, status.FromContextError(context.DeadlineExceeded).Err()
}

func hangs(ctx context.Context) (*pb.DeviceAllocateResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// A plugin that does not answer in time is away for a while, which Changed says, then for longer, and is called
// again when it answers.
func TestHangsAndAnswers(t *testing.T) {
	changed := make(chan error, 100)
	s, log := runLogged(t, setup{changed: func(p *Plugin) { changed <- p.Away() }})
	hang := atomic.Bool{}
	hang.Store(true)
	serve(t, s, "a.sock", &plugin{mark: "again",
		allocate: func(ctx context.Context) (*pb.DeviceAllocateResponse, error) {
			if hang.Load() {
				return hangs(ctx)
			}
			return &pb.DeviceAllocateResponse{DeviceNodes: []string{"again"}}, nil
		}})
	p := awaitReady(t, s, "widget")
	<-changed // it came
	for late := range maxLate + 2 {
		if _, err := ask(p, 20*time.Millisecond); !errors.Is(err, contain.ErrTimeout) {
			t.Fatalf("Call() = %v", err)
		}
		if late < maxLate-1 {
			continue
		}
		away := <-changed
		if away == nil || !strings.Contains(away.Error(), "its last calls each did not return in time") {
			t.Fatalf("after %d late calls Away() = %v", late+1, away)
		}
		if away := <-changed; away != nil || p.Failing() == nil {
			t.Fatalf("connected again, Away() = %v, Failing() = %v", away, p.Failing())
		}
	}
	if got := strings.Count(log(), "A plugin is not connected"); got != 3 {
		t.Errorf("%d lines in the log:\n%s", got, log())
	}
	hang.Store(false)
	for range 2 * maxLate {
		if mark, err := ask(p, await.Patience); mark != "again" {
			t.Fatalf("Call() = %v", err)
		}
	}
	if <-changed; p.Failing() != nil || len(changed) > 0 {
		t.Errorf("Failing() = %v after an answer", p.Failing())
	}
	hang.Store(true)
	for range maxLate - 1 { // it begins anew
		if _, err := ask(p, 20*time.Millisecond); !errors.Is(err, contain.ErrTimeout) || p.Away() != nil {
			t.Fatalf("Call() = %v, Away() = %v", err, p.Away())
		}
	}
}

// A caller that gives up early says nothing of the plugin; one whose own deadline comes first does.
func TestCallersDeadline(t *testing.T) {
	s, log := runLogged(t, setup{})
	serve(t, s, "a.sock", &plugin{allocate: hangs})
	p := awaitReady(t, s, "widget")
	call := func(own time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), own)
		defer cancel()
		return p.Call(ctx, await.Patience, "Allocate", func(ctx context.Context, s *Server) error {
			_, err := pb.NewDeviceClient(s).Allocate(ctx, &pb.DeviceAllocateRequest{})
			return err
		})
	}
	for range 2 * maxLate {
		if err := call(time.Millisecond); errors.Is(err, contain.ErrTimeout) || p.Away() != nil {
			t.Fatalf("Call() = %v, Away() = %v", err, p.Away())
		}
	}
	var calls sync.WaitGroup
	for range maxLate {
		calls.Go(func() {
			if err := call(enough); !errors.Is(err, contain.ErrTimeout) {
				t.Errorf("Call() = %v", err)
			}
		})
	}
	calls.Wait()
	awaitLog(t, log, errLate.Error())
}
