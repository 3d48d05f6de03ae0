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
		runtimeapi.RuntimeService_CreateContainer_FullMethodName: i.createContainer,
		runtimeapi.RuntimeService_RemoveContainer_FullMethodName: removed(i, "RemoveContainer",
			(*runtimeapi.RemoveContainerRequest).GetContainerId),
		runtimeapi.RuntimeService_StopPodSandbox_FullMethodName: removed(i, "StopPodSandbox",
			(*runtimeapi.StopPodSandboxRequest).GetPodSandboxId),
		runtimeapi.RuntimeService_RemovePodSandbox_FullMethodName: removed(i, "RemovePodSandbox",
			(*runtimeapi.RemovePodSandboxRequest).GetPodSandboxId),
	}
}

// removed forwards a request, and has what it names removed when that is gone: also when the runtime has never
// heard of it.
func removed[T any, R interface {
	*T
	proto.Message
}](i *interceptor, method string, id func(R) string) proxy.Interceptor {
	return func(ctx context.Context, request []byte, forward proxy.Forward) error {
		_, span := i.tracer.Call(ctx, method)
		_, err := forward(nil)
		defer span.End(err)
		if err != nil && status.Code(err) != codes.NotFound {
			return err
		}
		if r := R(new(T)); proto.Unmarshal(request, r) == nil {
			i.claims.Removed(id(r))
		}
		return err
	}
}
