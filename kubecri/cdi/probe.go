package cdi

import (
	"context"
	"encoding/json"
	"fmt"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Runtime is what a runtime is asked.
type Runtime interface {
	Version(ctx context.Context, in *runtimeapi.VersionRequest, opts ...grpc.CallOption) (*runtimeapi.VersionResponse, error)
	Status(ctx context.Context, in *runtimeapi.StatusRequest, opts ...grpc.CallOption) (*runtimeapi.StatusResponse, error)
}

// Support is what a runtime does about CDI.
type Support struct {
	// Runtime is its name and version.
	Runtime string
	// On is whether it injects the CDI devices that a request names; where it is
	// off, such a request fails.
	On bool
	// Dirs are where it looks for specs; those that are usual where it does not say.
	Dirs []string
	// Why says what On was concluded from.
	Why string
}

// Probe asks the runtime whether CDI is on. CRI has no field for it: containerd
// tells its configuration in a verbose Status, CRI-O has it always on, and
// of any other it is not known, which counts as off.
func Probe(ctx context.Context, runtime Runtime) (Support, error) {
	v, err := runtime.Version(ctx, &runtimeapi.VersionRequest{})
	if err != nil {
		return Support{}, fmt.Errorf("ask the runtime for its version: %w", err)
	}
	s := Support{Runtime: v.RuntimeName + " " + v.RuntimeVersion, Dirs: defaultDirs}
	if v.RuntimeName == "cri-o" {
		s.On, s.Why = true, "CRI-O has it always on"
		return s, nil
	}
	status, err := runtime.Status(ctx, &runtimeapi.StatusRequest{Verbose: true})
	if err != nil {
		return Support{}, fmt.Errorf("ask the runtime for its configuration: %w", err)
	}
	var config struct {
		EnableCDI   *bool    `json:"enableCDI"`
		CDISpecDirs []string `json:"cdiSpecDirs"`
	}
	err = json.Unmarshal([]byte(status.Info["config"]), &config)
	if len(config.CDISpecDirs) > 0 {
		s.Dirs = config.CDISpecDirs
	}
	switch {
	case err == nil && config.EnableCDI != nil:
		s.On, s.Why = *config.EnableCDI, fmt.Sprintf("its enableCDI is %t", *config.EnableCDI)
	case err == nil && len(config.CDISpecDirs) > 0: // containerd since 2.4
		s.On, s.Why = true, "it says cdiSpecDirs, and cannot turn CDI off"
	default:
		s.Why = "the runtime does not say enableCDI in its verbose Status"
	}
	return s, nil
}
