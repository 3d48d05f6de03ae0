package nri

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/containerd/nri/pkg/api"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeslot/kubeslot/kubecri/admit"
	"github.com/kubeslot/kubeslot/kubecri/claims"
	"github.com/kubeslot/kubeslot/types/slot"
)

// stopGrace is how long a container that is stopped has to end by itself.
const stopGrace = 10 * time.Second

// lacks returns which slots the container was assigned and has not been given;
// nil for none. Such a container was created while the runtime did without us.
func (p *Plugin) lacks(sandbox *api.PodSandbox, c *api.Container) error {
	for key, value := range c.GetAnnotations() {
		if _, _, ours, _ := slot.ParseAnnotation(key, value); ours {
			return nil // it came through here, or through the proxy
		}
	}
	if admit.Static(sandbox.GetAnnotations()) {
		return nil
	}
	grants, err := claims.Assigned(p.config.Node, sandbox.GetAnnotations(), podOf(sandbox), c.GetName())
	if err != nil || len(grants) == 0 {
		return nil // nobody can say what it would lack
	}
	names := make([]string, 0, len(grants))
	for _, g := range grants {
		names = append(names, g.Slot.String())
	}
	return fmt.Errorf("it was created without the slots %s that it was assigned, because kubecri was not connected to the runtime or did not answer in time",
		strings.Join(names, ", "))
}

// stop ends a container that runs without its devices: the kubelet creates it
// anew, if the pod's restartPolicy has it so.
func (s *session) stop(sandbox *api.PodSandbox, c *api.Container, why error) {
	pod, logger := podOf(sandbox), s.loggerOf(podOf(sandbox), c.GetName())
	logger.Error(why, "Stopping a container that runs without its devices", "containerID", c.GetId())
	s.config.Events.Eventf(&corev1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: pod.Namespace, Name: pod.Name, UID: types.UID(pod.UID)},
		corev1.EventTypeWarning, "StartedWithoutDevices", "Container %q is stopped, to be created again with its devices: %v", c.GetName(), why)
	ctx, cancel := context.WithTimeout(s.ctx, stopGrace+10*time.Second)
	defer cancel()
	_, err := s.config.Runtime.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: c.GetId(), Timeout: int64(stopGrace / time.Second)})
	if err != nil {
		logger.Error(err, "Cannot stop a container that runs without its devices: delete its pod", "containerID", c.GetId())
	}
}
