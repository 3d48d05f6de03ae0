// Package intercept is what kubecri does with the four CRI calls that concern
// slots: CreateContainer claims and injects them, and RemoveContainer,
// StopPodSandbox and RemovePodSandbox have them released once the runtime has
// done its part. All other calls pass by.
//
// The rule for errors: a container that was assigned devices, or asks for some,
// never starts without them; any other never waits for anything here. A static pod
// is such another: it cannot be assigned anything, and if it asks for slots, that
// is logged as soon as its mirror pod tells.
package intercept

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	corelisters "k8s.io/client-go/listers/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/kubecri/claims"
	"github.com/kubeslot/kubeslot/kubecri/metrics"
	"github.com/kubeslot/kubeslot/kubecri/proxy"
)

// Config configures the interceptors; everything but CDI and Metrics is required.
type Config struct {
	Node string
	// Pods are those of this node. A pod that is not there (yet) is judged by
	// its annotations alone.
	Pods   corelisters.PodLister
	Claims *claims.Claims
	// Device returns the device behind an Instance, with the properties that
	// containers are to see. It may wait until ctx is done for one that is not
	// known yet.
	Device func(ctx context.Context, instance string) (discovery.Device, error)
	// DeviceTimeout bounds that wait.
	DeviceTimeout time.Duration
	// CDI returns the name by which the runtime knows a device, "" for none.
	CDI     func(ctx context.Context, instance string, device discovery.Device) string
	Metrics *metrics.Metrics
}

type interceptor struct {
	Config
	withheld sync.Map // of "<instance>/<property>", what was told of Withheld ones
}

// New returns the interceptors by full method name, as proxy.Config has them.
func New(config Config) (map[string]proxy.Interceptor, error) {
	if config.Node == "" || config.Pods == nil || config.Claims == nil || config.Device == nil || config.DeviceTimeout <= 0 {
		return nil, errors.New("intercept: node, pods, claims, device and a positive device timeout are required")
	}
	i := &interceptor{Config: config}
	return map[string]proxy.Interceptor{
		runtimeapi.RuntimeService_CreateContainer_FullMethodName:  i.createContainer,
		runtimeapi.RuntimeService_RemoveContainer_FullMethodName:  i.removeContainer,
		runtimeapi.RuntimeService_StopPodSandbox_FullMethodName:   i.stopPodSandbox,
		runtimeapi.RuntimeService_RemovePodSandbox_FullMethodName: i.removePodSandbox,
	}, nil
}

func (i *interceptor) removeContainer(_ context.Context, request []byte, forward proxy.Forward) error {
	return after(request, forward, &runtimeapi.RemoveContainerRequest{}, func(r *runtimeapi.RemoveContainerRequest) {
		i.Claims.ContainerRemoved(r.ContainerId)
	})
}

func (i *interceptor) stopPodSandbox(_ context.Context, request []byte, forward proxy.Forward) error {
	return after(request, forward, &runtimeapi.StopPodSandboxRequest{}, func(r *runtimeapi.StopPodSandboxRequest) {
		i.Claims.SandboxStopped(r.PodSandboxId)
	})
}

func (i *interceptor) removePodSandbox(_ context.Context, request []byte, forward proxy.Forward) error {
	return after(request, forward, &runtimeapi.RemovePodSandboxRequest{}, func(r *runtimeapi.RemovePodSandboxRequest) {
		i.Claims.SandboxStopped(r.PodSandboxId)
	})
}

// after forwards a request and calls done when what it names is gone: also when
// the runtime has never heard of it.
func after[R proto.Message](request []byte, forward proxy.Forward, r R, done func(R)) error {
	_, err := forward(nil)
	if err != nil && status.Code(err) != codes.NotFound {
		return err
	}
	if proto.Unmarshal(request, r) == nil {
		done(r)
	}
	return err
}

// refuse makes the status that the kubelet reports in the pod's event.
func (i *interceptor) refuse(pod claims.Pod, container string, err error) error {
	code, result := codes.Unavailable, metrics.Failed
	if r := (*claims.Refusal)(nil); errors.As(err, &r) {
		code, result = codes.FailedPrecondition, metrics.Refused
	}
	i.Metrics.Injection(result)
	return status.Error(code, fmt.Sprintf("kubecri does not start container %q of pod %s without its devices: %s", container, pod, err))
}
