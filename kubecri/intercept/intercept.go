// Package intercept handles the four CRI calls that concern slots. CreateContainer
// claims and injects them. RemoveContainer, StopPodSandbox and RemovePodSandbox release
// them once the runtime has done its part. All other calls pass by. Package admit
// decides what a container gets.
package intercept

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeslot/kubeslot/kubecri/admit"
	"github.com/kubeslot/kubeslot/kubecri/claims"
	"github.com/kubeslot/kubeslot/kubecri/proxy"
	"github.com/kubeslot/kubeslot/kubecri/tracing"
)

type interceptor struct {
	admitter *admit.Admitter
	claims   *claims.Claims
	tracer   *tracing.Tracer
}

// New returns the interceptors by full method name, as proxy.Config has them.
// claims are the admitter's. tracer may be nil.
func New(admitter *admit.Admitter, claims *claims.Claims, tracer *tracing.Tracer) map[string]proxy.Interceptor {
	i := &interceptor{admitter, claims, tracer}
	return map[string]proxy.Interceptor{
		runtimeapi.RuntimeService_CreateContainer_FullMethodName:  i.createContainer,
		runtimeapi.RuntimeService_RemoveContainer_FullMethodName:  i.removeContainer,
		runtimeapi.RuntimeService_StopPodSandbox_FullMethodName:   i.stopPodSandbox,
		runtimeapi.RuntimeService_RemovePodSandbox_FullMethodName: i.removePodSandbox,
	}
}

func (i *interceptor) removeContainer(ctx context.Context, request []byte, forward proxy.Forward) error {
	_, span := i.tracer.Call(ctx, "RemoveContainer")
	return after(span, request, forward, &runtimeapi.RemoveContainerRequest{}, func(r *runtimeapi.RemoveContainerRequest) {
		i.claims.ContainerRemoved(r.ContainerId)
	})
}

func (i *interceptor) stopPodSandbox(ctx context.Context, request []byte, forward proxy.Forward) error {
	_, span := i.tracer.Call(ctx, "StopPodSandbox")
	return after(span, request, forward, &runtimeapi.StopPodSandboxRequest{}, func(r *runtimeapi.StopPodSandboxRequest) {
		i.claims.SandboxStopped(r.PodSandboxId)
	})
}

func (i *interceptor) removePodSandbox(ctx context.Context, request []byte, forward proxy.Forward) error {
	_, span := i.tracer.Call(ctx, "RemovePodSandbox")
	return after(span, request, forward, &runtimeapi.RemovePodSandboxRequest{}, func(r *runtimeapi.RemovePodSandboxRequest) {
		i.claims.SandboxStopped(r.PodSandboxId)
	})
}

// after forwards a request and calls done when what it names is gone: also when
// the runtime has never heard of it. It ends span.
func after[R proto.Message](span tracing.Span, request []byte, forward proxy.Forward, r R, done func(R)) error {
	_, err := forward(nil)
	defer span.End(err)
	if err != nil && status.Code(err) != codes.NotFound {
		return err
	}
	if proto.Unmarshal(request, r) == nil {
		done(r)
	}
	return err
}
