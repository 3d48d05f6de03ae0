package intercept

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/kubecri/claims"
	"github.com/kubeslot/kubeslot/kubecri/inject"
	"github.com/kubeslot/kubeslot/kubecri/metrics"
	"github.com/kubeslot/kubeslot/kubecri/proxy"
	"github.com/kubeslot/kubeslot/types/assignment"
)

// createContainer gives the container the slots that its pod was assigned.
// Everything that can go wrong without a claim goes wrong before there is one.
func (i *interceptor) createContainer(ctx context.Context, request []byte, forward proxy.Forward) error {
	r := &runtimeapi.CreateContainerRequest{}
	if err := proto.Unmarshal(request, r); err != nil {
		_, err := forward(nil) // the runtime is to say what it thinks of it
		return err
	}
	meta := r.GetSandboxConfig().GetMetadata()
	pod := claims.Pod{Namespace: meta.GetNamespace(), Name: meta.GetName(), UID: meta.GetUid()}
	container := r.GetConfig().GetMetadata().GetName()
	logger := klog.FromContext(ctx).WithValues("pod", klog.KRef(pod.Namespace, pod.Name), "container", container)
	ctx = klog.NewContext(ctx, logger)

	what, err := i.due(r.GetSandboxConfig().GetAnnotations(), pod, container)
	if err != nil {
		return i.refused(logger, pod, container, err)
	}
	if what.ignored != nil {
		logger.Info("Warning: a container starts without devices", "reason", what.ignored)
		i.Metrics.Injection(metrics.Ignored)
	}
	if what.none() {
		_, err := forward(nil)
		return err
	}
	extra, err := i.extra(ctx, r.GetConfig(), pod, what.grants)
	if err != nil {
		return i.refused(logger, pod, container, err)
	}
	taken, err := i.Claims.Take(ctx, claims.Request{
		Pod: pod, Container: container, Sandbox: r.GetPodSandboxId(), Grants: what.grants, Requested: what.requested})
	if err != nil {
		return i.refused(logger, pod, container, err)
	}
	response, err := forward(extra)
	if err != nil {
		taken.Failed(err)
		i.Metrics.Injection(metrics.Rejected)
		return err
	}
	i.Metrics.Injection(metrics.Injected)
	created := &runtimeapi.CreateContainerResponse{}
	if err := proto.Unmarshal(response, created); err != nil || created.ContainerId == "" {
		// It exists under an id that is not known: the runtime is asked.
		taken.Failed(status.Error(codes.Unavailable, "the runtime's answer names no container"))
		return nil
	}
	taken.Created(created.ContainerId)
	logger.Info("Created container with devices", "containerID", created.ContainerId, "slots", slotNames(what.grants))
	return nil
}

// due looks at the pod as the API server has it, if it is here already, and at
// the assignment in its annotations.
func (i *interceptor) due(annotations map[string]string, pod claims.Pod, container string) (due, error) {
	var spec *corev1.Pod
	if p, err := i.Pods.Pods(pod.Namespace).Get(pod.Name); err == nil {
		// A static pod is there as its mirror, which has a UID of its own.
		mirror := static(annotations) && p.Annotations[corev1.MirrorPodAnnotationKey] == pod.UID
		if string(p.UID) == pod.UID || mirror {
			spec = p
		}
	}
	return decide(i.Node, annotations, pod, container, spec)
}

// extra finds the devices and returns what to append to the request.
func (i *interceptor) extra(ctx context.Context, config *runtimeapi.ContainerConfig, pod claims.Pod, granted []assignment.Grant) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, i.DeviceTimeout)
	defer cancel()
	devices, names := map[string]discovery.Device{}, map[string]string{}
	grants := make([]inject.Grant, 0, len(granted))
	for _, g := range granted {
		device, ok := devices[g.Slot.Instance]
		if !ok {
			var err error
			if device, err = i.Device(ctx, g.Slot.Instance); err != nil {
				return nil, err
			}
			devices[g.Slot.Instance] = device
			i.tellWithheld(ctx, g.Slot.Instance, device)
			if i.CDI != nil {
				names[g.Slot.Instance] = i.CDI(ctx, g.Slot.Instance, device)
			}
		}
		grant := inject.Grant{Slot: g.Slot, Device: device, CDI: names[g.Slot.Instance]}
		if !g.InstanceLevel() {
			grant.Holder = pod.UID
		}
		grants = append(grants, grant)
	}
	return inject.Extra(config, grants)
}

// tellWithheld says, once a property, why containers do not have it by its name.
func (i *interceptor) tellWithheld(ctx context.Context, instance string, device discovery.Device) {
	for _, name := range inject.Withheld(device) {
		if _, told := i.withheld.LoadOrStore(instance+"/"+name, true); !told {
			klog.FromContext(ctx).Info("Warning: a property of the device decides what code a process runs, so containers get it only with the device's hash in its name",
				"property", name, "instance", instance)
		}
	}
}

func (i *interceptor) refused(logger klog.Logger, pod claims.Pod, container string, err error) error {
	logger.Error(err, "Refused to create a container")
	return i.refuse(pod, container, err)
}

func slotNames(grants []assignment.Grant) []string {
	names := make([]string, 0, len(grants))
	for _, g := range grants {
		names = append(names, g.Slot.String())
	}
	return names
}
