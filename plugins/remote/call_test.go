package remote

import (
	"context"
	"errors"
	"fmt"
	"strings"
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
			if err := p.Unavailable(); err != nil {
				t.Errorf("Unavailable() = %v", err)
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

// A plugin that does not answer in time is not called for a while, which Changed says, and again then.
func TestPaused(t *testing.T) {
	changed := make(chan error, 100)
	s := run(t, setup{changed: func(p *Plugin) { changed <- p.Unavailable() }})
	answer := make(chan struct{})
	serve(t, s, "a.sock", &plugin{allocate: func(ctx context.Context) (*pb.DeviceAllocateResponse, error) {
		select {
		case <-answer:
			return &pb.DeviceAllocateResponse{DeviceNodes: []string{"again"}}, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}})
	p := awaitReady(t, s, "widget")
	<-changed // it came
	for range breakAfter {
		if _, err := ask(p, 20*time.Millisecond); !errors.Is(err, contain.ErrTimeout) {
			t.Fatalf("Call() = %v", err)
		}
	}
	if err := <-changed; err == nil || p.Away() != nil {
		t.Fatalf("Unavailable() = %v, Away() = %v", err, p.Away())
	}
	// The pause may be over already where the machine is busy: then a call tries, and the next pause is longer.
	await.That(t, "a pause", func() (bool, string) {
		_, err := ask(p, 20*time.Millisecond)
		text := fmt.Sprint(err)
		return strings.Contains(text, "failed in its last calls: each did not return in time"), text
	})
	for p.Unavailable() != nil { // once the pause is over
		<-changed
	}
	close(answer)
	if mark, err := ask(p, await.Patience); mark != "again" {
		t.Fatalf("Call() = %v", err)
	}
	for err := <-changed; err != nil || len(changed) > 0; err = <-changed {
	}
	if err := p.Unavailable(); err != nil {
		t.Errorf("Unavailable() = %v", err)
	}
}

// A caller that gives up early says nothing of the plugin; one whose own deadline comes first does.
func TestCallersDeadline(t *testing.T) {
	s := run(t, setup{})
	serve(t, s, "a.sock", &plugin{allocate: hangs})
	p := awaitReady(t, s, "widget")
	call := func(own, timeout time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), own)
		defer cancel()
		return p.Call(ctx, timeout, "Allocate", func(ctx context.Context, s *Server) error {
			_, err := pb.NewDeviceClient(s).Allocate(ctx, &pb.DeviceAllocateRequest{})
			return err
		})
	}
	for range 2 * breakAfter {
		if err := call(time.Millisecond, await.Patience); errors.Is(err, contain.ErrTimeout) || p.Unavailable() != nil {
			t.Fatalf("Call() = %v, Unavailable() = %v", err, p.Unavailable())
		}
	}
	for range breakAfter {
		// Where the machine is busy, a call may have too little of its time.
		await.That(t, "a timeout", func() (bool, string) {
			err := call(20*time.Millisecond, 21*time.Millisecond)
			return errors.Is(err, contain.ErrTimeout), fmt.Sprint(err)
		})
	}
	if p.Unavailable() == nil {
		t.Error("the plugin is called")
	}
}
