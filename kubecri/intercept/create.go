package intercept

import (
	"context"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/kubecri/admit"
	"github.com/kubeslot/kubeslot/kubecri/claims"
	"github.com/kubeslot/kubeslot/kubecri/inject"
	"github.com/kubeslot/kubeslot/kubecri/proxy"
)

// createContainer gives the container the slots that its pod was assigned.
func (i *interceptor) createContainer(ctx context.Context, request []byte, forward proxy.Forward) (err error) {
	ctx, span := i.tracer.Call(ctx, "CreateContainer")
	defer func() { span.End(err) }()
	r := &runtimeapi.CreateContainerRequest{}
	if err := proto.Unmarshal(request, r); err != nil {
		_, err := forward(nil) // the runtime is to say what it thinks of it
		return err
	}
	meta := r.GetSandboxConfig().GetMetadata()
	c := admit.Container{
		Pod:            claims.Pod{Namespace: meta.GetNamespace(), Name: meta.GetName(), UID: meta.GetUid()},
		PodAnnotations: r.GetSandboxConfig().GetAnnotations(),
		PodLabels:      r.GetSandboxConfig().GetLabels(),
		Sandbox:        r.GetPodSandboxId(),
		Name:           r.GetConfig().GetMetadata().GetName(),
		Requested:      inject.FromCRI(r),
	}
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithValues("pod", klog.KRef(c.Pod.Namespace, c.Pod.Name), "container", c.Name))
	span.Pod(c.Pod.Namespace, c.Pod.Name, c.Pod.UID, c.Name)

	admission, err := i.admitter.Admit(ctx, c)
	if err != nil {
		return err
	}
	extra, err := admission.Additions.CRI()
	if err != nil {
		return admission.Refuse(ctx, err)
	}
	_, forwarding := i.tracer.Start(ctx, "Forward")
	response, err := forward(extra)
	forwarding.End(err)
	if err != nil {
		admission.Failed(err)
		return err
	}
	created := &runtimeapi.CreateContainerResponse{}
	if err := proto.Unmarshal(response, created); err != nil {
		created.ContainerId = "" // it exists, but who knows as what
	}
	admission.Created(ctx, created.ContainerId)
	return nil
}
