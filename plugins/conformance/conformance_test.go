package conformance

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kubeslot/kubeslot/plugins/example/widget"
	"github.com/kubeslot/kubeslot/plugins/remote"
	"github.com/kubeslot/kubeslot/plugins/server"
	"github.com/kubeslot/kubeslot/test/await"
	"github.com/kubeslot/kubeslot/test/npm"
	"github.com/kubeslot/kubeslot/types/plugin/registration"
	pb "github.com/kubeslot/kubeslot/types/plugin/v1alpha1"
)

// results runs all checks and returns the names of those that failed and that were skipped. What keeps the rules is in
// time, however slow the machine is.
func results(t *testing.T, socket string) (failed, skip []string) {
	t.Helper()
	return resultsIn(t, await.Patience, socket)
}

// resultsIn is results with that as the first deadline.
func resultsIn(t *testing.T, quick time.Duration, socket string) (failed, skip []string) {
	t.Helper()
	run(&target{ctx: t.Context(), quick: quick, slow: await.Patience, socket: socket}, func(r Result) {
		switch {
		case errors.As(r.Err, new(Skipped)):
			skip = append(skip, r.Name)
		case r.Err != nil:
			t.Logf("%s: %v", r.Name, r.Err)
			failed = append(failed, r.Name)
		}
	})
	return failed, skip
}

func serve(t *testing.T, p server.Plugin, folder string) {
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- p.Serve(ctx, folder) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

// The example plugin keeps all rules, in Go and in JavaScript.
func TestExample(t *testing.T) {
	t.Run("Go", func(t *testing.T) {
		folder := t.TempDir()
		for half, p := range map[string]server.Plugin{
			"device":    server.Device(&widget.Device{}, time.Minute),
			"scheduler": server.Scheduler(widget.Scheduler{}, string(widget.Resource)),
		} {
			serve(t, p, filepath.Join(folder, half))
		}
		expect(t, folder, map[string][]string{"device": {"held"}})
	})
	t.Run("JavaScript", func(t *testing.T) {
		folder := t.TempDir()
		modules := npm.Install(t, "@grpc/grpc-js@1.14.7", "@grpc/proto-loader@0.8.1")
		for _, half := range []string{"device", "scheduler"} {
			if err := os.Mkdir(filepath.Join(folder, half), 0o755); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("node", "../example/nodejs/widget.js", "--half="+half,
				"--socket-folder="+filepath.Join(folder, half))
			cmd.Env, cmd.Stderr = append(os.Environ(), "NODE_PATH="+modules), os.Stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { // after the checks, and as the kubelet ends it
				cmd.Process.Signal(os.Interrupt)
				cmd.Wait()
			})
		}
		expect(t, folder, map[string][]string{"device": {"status", "own variables", "held"}, "scheduler": {"status"}})
	})
}

// expect checks both halves, of which nothing may fail and the named checks are skipped.
func expect(t *testing.T, folder string, skipped map[string][]string) {
	t.Helper()
	for _, half := range []string{"device", "scheduler"} {
		socket := filepath.Join(folder, half, "widget.sock")
		await.That(t, "the socket", func() error { _, err := os.Stat(socket); return err })
		failed, skip := results(t, socket)
		if len(failed) > 0 || !slices.Equal(skip, skipped[half]) {
			t.Errorf("%s: failed: %q; skipped: %q, want %q", half, failed, skip, skipped[half])
		}
	}
}

// alter changes a method's response, or returns an error instead. call counts from 1.
type alter func(call int64, response any) error

// set is an alteration of a response of type T.
func set[T any](f func(call int64, response T)) alter {
	return func(call int64, response any) error {
		f(call, response.(T))
		return nil
	}
}

// broken serves the example plugin's half, and alters the responses of one method.
func broken(t *testing.T, p server.Plugin, method string, f alter) (socket string) {
	t.Helper()
	var calls atomic.Int64
	altered := func(full string, response any) error {
		if path.Base(full) != method {
			return nil
		}
		return f(calls.Add(1), response)
	}
	s := grpc.NewServer(
		grpc.UnaryInterceptor(func(ctx context.Context, request any, info *grpc.UnaryServerInfo,
			handler grpc.UnaryHandler) (any, error) {
			response, err := handler(ctx, request)
			if err == nil {
				err = altered(info.FullMethod, response)
			}
			return response, err
		}),
		grpc.StreamInterceptor(func(service any, s grpc.ServerStream, info *grpc.StreamServerInfo,
			handler grpc.StreamHandler) error {
			return handler(service, brokenStream{s, func(m any) error { return altered(info.FullMethod, m) }})
		}))
	p.Register(s)
	return listen(t, s, p.Half)
}

// listen serves the half on a socket.
func listen(t *testing.T, s *grpc.Server, half registration.Half) (socket string) {
	t.Helper()
	registration.RegisterRegistrationServer(s, registrar{half: half})
	socket = filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	go s.Serve(listener)
	t.Cleanup(s.Stop)
	return socket
}

type brokenStream struct {
	grpc.ServerStream
	altered func(any) error
}

func (s brokenStream) SendMsg(m any) error {
	if err := s.altered(m); err != nil {
		return err
	}
	return s.ServerStream.SendMsg(m)
}

type registrar struct {
	registration.UnimplementedRegistrationServer
	half registration.Half
}

func (r registrar) GetInfo(context.Context, *registration.GetInfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Name: "widget", Half: r.half, SupportedVersions: []string{pb.Version}}, nil
}

func (registrar) NotifyStatus(context.Context, *registration.Status) (*registration.StatusResponse, error) {
	return &registration.StatusResponse{}, nil
}

const (
	allOfState = "watch, watch again, allocate again, allocate missing device"
	allOfFit   = "sessions, fit again, fit bad requests, fit cancelled, fit 5,000 nodes, allocate again"
)

func refuse(int64, any) error { return status.Error(codes.FailedPrecondition, "no") }

// Each rule that a server breaks fails the checks that are about it.
func TestBrokenRules(t *testing.T) {
	type info = *registration.PluginInfo
	type state = *pb.NodeState
	const soon = 2 * time.Second // the deadline where a server is late
	late := func() { time.Sleep(soon + soon/4) }
	for name, tc := range map[string]struct {
		half   string
		method string
		alter  alter
		failed string
	}{
		"a bad name": {"device", "GetInfo", set(func(_ int64, r info) { r.Name = "A" }), "registration"},
		"no half":    {"device", "GetInfo", set(func(_ int64, r info) { r.Half = 0 }), "registration"},
		"no version": {"device", "GetInfo", set(func(_ int64, r info) {
			r.SupportedVersions = nil
		}), "registration"},
		"another folder": {"device", "GetInfo", set(func(_ int64, r info) { r.Socket = "../s" }), "registration"},
		"changing info": {"device", "GetInfo", set(func(n int64, r info) {
			r.Version = fmt.Sprint(n)
		}), "registration"},
		"refuses status": {"device", "NotifyStatus", refuse, "status"},
		"starts once": {"device", "Start", func(n int64, r any) error {
			if n > 1 {
				return refuse(n, r)
			}
			return nil
		}, "start twice"},
		"no variable": {"device", "OwnVariables", set(func(_ int64, r *pb.OwnVariablesResponse) {
			r.Variables = map[string]string{"A=B": ""}
		}), "own variables"},
		"a variable that kubecri refuses": {"device", "OwnVariables", set(func(_ int64, r *pb.OwnVariablesResponse) {
			r.Variables = map[string]string{"GERÄT": ""}
		}), "own variables"},
		"a slot": {"device", "Watch", set(func(_ int64, r state) {
			r.Capacity["akri.sh/cam"] = 1
		}), allOfState},
		"more than there is": {"device", "Watch", set(func(_ int64, r state) {
			r.Allocatable["x"] = 1
		}), allOfState},
		"negative": {"device", "Watch", set(func(_ int64, r state) {
			r.Allocatable["x"] = -1
		}), allOfState},
		"claims cpu": {"device", "Watch", set(func(_ int64, r state) {
			r.KubeCapacity["cpu"] = 1
		}), allOfState},
		"late":           {"device", "Watch", set(func(int64, state) { late() }), allOfState},
		"changing state": {"device", "Watch", set(func(n int64, r state) { r.Capacity["x"] = n }), "watch again"},
		"gives to all": {"device", "Allocate", set(func(_ int64, r *pb.DeviceAllocateResponse) {
			r.Env = map[string]string{"A": "B"}
		}), "allocate nothing"},
		"gives nothing": {"device", "Allocate", set(func(_ int64, r *pb.DeviceAllocateResponse) {
			r.Env = nil
		}), "allocate again"},
		"gives another": {"device", "Allocate", set(func(n int64, r *pb.DeviceAllocateResponse) {
			if r.Env != nil {
				r.Env["N"] = fmt.Sprint(n)
			}
		}), "allocate again"},
		"more than kubecri takes": {"device", "Allocate", set(func(_ int64, r *pb.DeviceAllocateResponse) {
			if r.Env != nil {
				r.Env["N"] = strings.Repeat("x", remote.MaxMessageBytes)
			}
		}), "allocate again"},
		"no resources": {"scheduler", "Start", set(func(_ int64, r *pb.SchedulerStartResponse) {
			r.Resources = nil
		}), "resources, sessions, node unknown, fit again, fit bad requests, fit cancelled, fit 5,000 nodes, " +
			"allocate again"},
		"another revision": {"scheduler", "Nodes", set(func(_ int64, r *pb.NodesResponse) { r.Revision++ }),
			"sessions, fit 5,000 nodes"},
		"a negative score": {"scheduler", "Fit", set(func(_ int64, r *pb.FitResponse) {
			for _, v := range r.Verdicts {
				v.Score = -1
			}
		}), allOfFit},
		"too few verdicts": {"scheduler", "Fit", set(func(_ int64, r *pb.FitResponse) {
			r.Verdicts = nil
		}), allOfFit},
		"no reason": {"scheduler", "Fit", set(func(_ int64, r *pb.FitResponse) {
			for _, v := range r.Verdicts {
				v.Fits, v.Reasons = false, nil
			}
		}), allOfFit},
		"a negative amount": {"scheduler", "Fit", set(func(_ int64, r *pb.FitResponse) {
			for _, v := range r.Verdicts {
				v.Reasons = []*pb.Reason{{Text: "none", Used: -1}}
			}
		}), allOfFit},
		"another container": {"scheduler", "Fit", set(func(_ int64, r *pb.FitResponse) {
			for _, v := range r.Verdicts {
				v.Changes = &pb.PodChanges{RunningContainers: map[string]*pb.ContainerChanges{"x": {}}}
			}
		}), allOfFit},
		"not pure": {"scheduler", "Fit", set(func(n int64, r *pb.FitResponse) {
			for _, v := range r.Verdicts {
				v.Score = float64(n)
			}
		}), "sessions, fit again"},
		"chooses another": {"scheduler", "Allocate", set(func(n int64, r *pb.AllocateResponse) {
			for _, c := range r.Changes.RunningContainers {
				c.DevRequests["x"] = n
			}
		}), "allocate again"},
		"slow": {"scheduler", "Fit", set(func(_ int64, r *pb.FitResponse) {
			if len(r.Verdicts) == chunk {
				late()
			}
		}), "fit 5,000 nodes"},
		"invents a verdict": {"scheduler", "Fit", set(func(_ int64, r *pb.FitResponse) {
			if len(r.Verdicts) == 0 {
				r.Verdicts = []*pb.Verdict{{Fits: true}}
			}
		}), "fit empty request"},
	} {
		t.Run(name, func(t *testing.T) {
			p := server.Device(&widget.Device{}, time.Minute)
			if tc.half == "scheduler" {
				p = server.Scheduler(widget.Scheduler{}, string(widget.Resource))
			}
			quick := await.Patience
			if name == "late" || name == "slow" {
				quick = soon
			}
			failed, _ := resultsIn(t, quick, broken(t, p, tc.method, tc.alter))
			if got := strings.Join(failed, ", "); got != tc.failed {
				t.Errorf("failed: %s; want %s", got, tc.failed)
			}
		})
	}
}
