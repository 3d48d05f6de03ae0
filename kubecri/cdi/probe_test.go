package cdi

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeslot/kubeslot/discovery"
)

type runtime struct {
	name, version string
	info          map[string]string
	err           error
}

func (r runtime) Version(context.Context, *runtimeapi.VersionRequest, ...grpc.CallOption) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{RuntimeName: r.name, RuntimeVersion: r.version}, r.err
}

func (r runtime) Status(_ context.Context, in *runtimeapi.StatusRequest, _ ...grpc.CallOption) (*runtimeapi.StatusResponse, error) {
	if !in.Verbose {
		return &runtimeapi.StatusResponse{}, nil
	}
	return &runtimeapi.StatusResponse{Info: r.info}, nil
}

func TestProbe(t *testing.T) {
	config := func(text string) map[string]string { return map[string]string{"config": text} }
	for _, test := range []struct {
		name    string
		runtime runtime
		on      bool
		dirs    int
	}{
		{"containerd 2", runtime{"containerd", "v2.3.7", config(`{"enableCDI":true,"cdiSpecDirs":["/etc/cdi","/run/cdi"]}`), nil}, true, 2},
		{"containerd with CDI always on", runtime{"containerd", "v2.4.2", config(`{"cdiSpecDirs":["/etc/cdi","/run/cdi"]}`), nil}, true, 2},
		{"containerd with CDI off", runtime{"containerd", "v2.3.7", config(`{"enableCDI":false,"cdiSpecDirs":["/etc/cdi"]}`), nil}, false, 1},
		{"containerd that does not say", runtime{"containerd", "v1.6.0", config(`{}`), nil}, false, 2},
		{"CRI-O", runtime{"cri-o", "1.36.0", nil, nil}, true, 2},
		{"CRI-O of an odd version", runtime{"cri-o", "dev", nil, nil}, true, 2},
		{"another runtime", runtime{"docker", "27.0.0", config("no JSON"), nil}, false, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, err := Probe(t.Context(), test.runtime)
			if err != nil {
				t.Fatal(err)
			}
			if s.On != test.on || len(s.Dirs) != test.dirs || s.Runtime != test.runtime.name+" "+test.runtime.version || s.Why == "" {
				t.Errorf("got %+v, want on %t with %d directories", s, test.on, test.dirs)
			}
		})
	}
	down := errors.New("no such socket")
	if _, err := Probe(t.Context(), runtime{err: down}); !errors.Is(err, down) {
		t.Errorf("got %v, want the runtime's error", err)
	}
}

// starting is a runtime that answers nothing at first, as containerd while it reads what it runs.
type starting struct {
	runtime
	silent int
}

func (s *starting) Version(ctx context.Context, in *runtimeapi.VersionRequest, opts ...grpc.CallOption) (
	*runtimeapi.VersionResponse, error) {
	if s.silent--; s.silent >= 0 {
		return nil, status.Error(codes.Unavailable, "server is not initialized yet")
	}
	return s.runtime.Version(ctx, in, opts...)
}

// A runtime that can be connected to may not answer yet, and is asked again until it does.
func TestProbeOfARuntimeThatStarts(t *testing.T) {
	dir := t.TempDir()
	off := map[string]string{"config": `{"enableCDI":false}`}
	on := map[string]string{"config": `{"enableCDI":true,"cdiSpecDirs":["` + dir + `"]}`}
	r := &starting{runtime: runtime{"containerd", "v2.3.7", on, nil}}
	i := NewInjector(dir, r)
	i.ask = time.Millisecond
	for _, test := range []struct {
		info   map[string]string
		usable bool
	}{{on, true}, {off, false}} {
		r.info, r.silent = test.info, 3
		if usable := i.Usable(t.Context()) == nil; usable != test.usable {
			t.Errorf("a runtime that says %v after 3 questions: usable %t", test.info, usable)
		}
	}
	r.silent = 1 << 30
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := i.Usable(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a runtime that does not say: %v", err)
	}
}

// Devices are given by name only while the runtime is there that has said that it resolves names: the next one may have
// another configuration.
func TestNamesWhileTheRuntimeIsThere(t *testing.T) {
	dir := t.TempDir()
	info := map[string]string{"config": `{"cdiSpecDirs":["` + dir + `"]}`}
	i := NewInjector(dir, runtime{"containerd", "v2.4.2", info, nil})
	device := discovery.Device{Mounts: []discovery.Mount{{HostPath: "/etc/hosts", ContainerPath: "/h"}}}
	ctx, gone := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); i.Follow(ctx) }()
	for deadline := time.Now().Add(time.Minute); i.Device(ctx, "cam-a1", device) == ""; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("waited a minute for a device to be given by name")
		}
	}
	gone()
	<-ended
	if name := i.Device(t.Context(), "cam-a1", device); name != "" {
		t.Errorf("given as %s while the runtime is away", name)
	}
}
