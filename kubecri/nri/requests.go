package nri

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/ttrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/kubecri/admit"
	"github.com/kubeslot/kubeslot/kubecri/claims"
	"github.com/kubeslot/kubeslot/kubecri/repair"
)

// ours is the part of the runtime's time limit within which a request is answered;
// the rest is for the way there and back. An answer that is late counts as none,
// and the container starts without its devices. As containerd asks for one
// container at a time, a longer limit would also hold up the others longer.
const ours = 0.75

// within bounds a request.
func within(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(api.DefaultPluginRequestTimeout)
	}
	return context.WithTimeout(ctx, time.Duration(float64(time.Until(deadline))*ours))
}

// Synchronize is called once a connection with the sandboxes and the containers that are
// created or run. While it is at work, containerd creates no container (CRI-O does,
// cri-o#9835), and asks for each from when it has returned. One that returns after the
// runtime's limit is late: the runtime has ended the connection, and creates and starts
// containers that are neither in this list nor asked for. The next connection's list has
// them, and so have the runtime's events and lists of CRI, by which package repair finds
// them: Resync is what looks.
func (s *session) Synchronize(ctx context.Context, sandboxes []*api.PodSandbox, containers []*api.Container) ([]*api.ContainerUpdate, error) {
	exists := make(map[string]bool, len(containers))
	for _, c := range containers {
		exists[c.Id] = true
	}
	if !s.synchronized(s, exists) {
		return nil, errEnded
	}
	s.config.Claims.Resync() // for what ended while we were away, and was created past us
	klog.FromContext(s.ctx).Info("The runtime asks for each container from here on", "sandboxes", len(sandboxes), "containers", len(containers))
	return nil, nil
}

// CreateContainer is asked before a container is created; an error keeps it from
// being created.
func (s *session) CreateContainer(ctx context.Context, sandbox *api.PodSandbox, c *api.Container) (_ *api.ContainerAdjustment, _ []*api.ContainerUpdate, err error) {
	ctx, span := s.config.Tracer.Call(traced(ctx), "CreateContainer")
	defer func() { span.End(err) }()
	s.answering.RLock()
	defer s.answering.RUnlock()
	in := admit.Container{
		Pod: podOf(sandbox), PodAnnotations: sandbox.GetAnnotations(), PodLabels: sandbox.GetLabels(), Sandbox: sandbox.GetId(),
		Name: c.GetName(), Requested: requested(c),
	}
	in.Requested.NoCDI = !s.recent
	span.Pod(in.Pod.Namespace, in.Pod.Name, in.Pod.UID, in.Name)
	answer, cancel := within(ctx)
	defer cancel()
	answer = klog.NewContext(answer, s.loggerOf(in.Pod, in.Name))
	admission, err := s.config.Admitter.Admit(answer, in)
	if err != nil {
		return nil, nil, err
	}
	if admission.Additions.None() {
		return nil, nil, nil
	}
	adjustment, err := adjust(admission.Additions, c)
	if err != nil {
		return nil, nil, admission.Refuse(answer, err)
	}
	err = ctx.Err()
	if err != nil || !s.begin(s, c.GetId(), creation{admission, in.Sandbox, in.Name}) { // nobody listens any more
		admission.Failed(status.Error(codes.Aborted, "the runtime did not wait for the answer")) // it went on without the devices
		return nil, nil, cmp.Or(err, errEnded)
	}
	return adjustment, nil, nil
}

// ValidateContainerAdjustment is asked about each container that is to be created, once all
// plugins have been. Unlike CreateContainer it fails closed: when this plugin has not
// answered in time, the runtime does not create the container. So the container over which
// kubecri hangs is refused.
func (s *session) ValidateContainerAdjustment(_ context.Context, r *api.ValidateContainerAdjustmentRequest) error {
	s.validated(r)
	pod, c := r.GetPod(), r.GetContainer()
	annotations := map[string]string{}
	maps.Copy(annotations, c.GetAnnotations())
	maps.Copy(annotations, r.GetAdjust().GetAnnotations())
	if err := s.lacks(pod, c, annotations); err != nil {
		s.loggerOf(podOf(pod), c.GetName()).Error(err, "Refused a container that was to be created without its devices")
		return fmt.Errorf("kubecri does not let container %q of pod %s be created without its devices: %w",
			c.GetName(), podOf(pod), err)
	}
	return nil
}

// lacks returns what the container was assigned and, by its annotations, has not been given; nil for nothing.
// Such a container was created while the runtime did without us.
func (p *Plugin) lacks(sandbox *api.PodSandbox, c *api.Container, annotations map[string]string) error {
	lack := repair.Of(p.config.Node, repair.Container{Pod: podOf(sandbox), PodAnnotations: sandbox.GetAnnotations(),
		Name: c.GetName(), Annotations: annotations, CreatedAt: c.GetCreatedAt()}, p.config.Claims.MarkedSince())
	if lack.None() {
		return nil
	}
	return lack
}

// traced has the runtime's trace context, which comes in ttrpc's metadata, where
// gRPC has it.
func traced(ctx context.Context) context.Context {
	md, ok := ttrpc.GetMetadata(ctx)
	if !ok {
		return ctx
	}
	return metadata.NewIncomingContext(ctx, metadata.MD(md))
}

// PostCreateContainer is told of a container that was created.
func (s *session) PostCreateContainer(_ context.Context, sandbox *api.PodSandbox, c *api.Container) error {
	s.created(sandbox, c)
	return nil
}

// created is called with each container that there is now, by whichever connection it was admitted.
func (s *session) created(sandbox *api.PodSandbox, c *api.Container) {
	if a := s.end(c.GetId()); a != nil {
		a.Created(klog.NewContext(s.ctx, s.loggerOf(podOf(sandbox), c.GetName())), c.GetId())
	} else {
		s.config.Claims.Started(c.GetId(), podOf(sandbox), c.GetName(), sandbox.GetAnnotations())
	}
}

// StartContainer is asked before a container is started. It may be the first to tell that the container was created: a
// runtime whose plugin fails in PostCreateContainer asks no further one, and CRI-O asks none when the kubelet's request
// has timed out, and gives it the container when it tries again.
func (s *session) StartContainer(_ context.Context, sandbox *api.PodSandbox, c *api.Container) error {
	if err := s.lacks(sandbox, c, c.GetAnnotations()); err != nil {
		s.loggerOf(podOf(sandbox), c.GetName()).Error(err, "Refused to start a container that was created while kubecri did not answer")
		return status.Errorf(codes.FailedPrecondition, "kubecri does not start container %q of pod %s without its devices: %v", c.GetName(), podOf(sandbox), err)
	}
	s.created(sandbox, c)
	return nil
}

// RemoveContainer is told of a container that is removed, and of one whose creation
// failed.
func (s *session) RemoveContainer(_ context.Context, _ *api.PodSandbox, c *api.Container) error {
	if a := s.end(c.GetId()); a != nil {
		a.Failed(status.Error(codes.Aborted, "the runtime did not create the container"))
	}
	s.config.Claims.Removed(c.GetId())
	return nil
}

// StopPodSandbox is told of a sandbox that has stopped.
func (s *session) StopPodSandbox(_ context.Context, sandbox *api.PodSandbox) error {
	s.stopped(sandbox.GetId())
	return nil
}

// RemovePodSandbox is told of a sandbox that is removed.
func (s *session) RemovePodSandbox(_ context.Context, sandbox *api.PodSandbox) error {
	s.stopped(sandbox.GetId())
	return nil
}

func (s *session) loggerOf(pod claims.Pod, container string) klog.Logger {
	return klog.FromContext(s.ctx).WithValues("pod", klog.KRef(pod.Namespace, pod.Name), "container", container)
}

func podOf(sandbox *api.PodSandbox) claims.Pod {
	return claims.Pod{Namespace: sandbox.GetNamespace(), Name: sandbox.GetName(), UID: sandbox.GetUid()}
}
