package cdi

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
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
		{"containerd that does not say", runtime{"containerd", "v1.6.0", config(`{}`), nil}, false, 0},
		{"CRI-O", runtime{"cri-o", "1.36.0", nil, nil}, true, 0},
		{"CRI-O before CDI", runtime{"cri-o", "1.23.1", nil, nil}, false, 0},
		{"CRI-O of an odd version", runtime{"cri-o", "dev", nil, nil}, false, 0},
		{"another runtime", runtime{"docker", "27.0.0", config("no JSON"), nil}, false, 0},
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
