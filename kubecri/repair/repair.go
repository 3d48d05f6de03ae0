// Package repair finds containers that bypassed kubecri, and so run without the
// devices that they were assigned: by a kubelet that is pointed at the runtime's socket
// instead of kubecri's, or by a runtime that did without its NRI plugin. They are stopped,
// for the kubelet to create them again with their devices, unless all Configurations of
// their devices say otherwise. It is the same in proxy mode and in NRI mode.
package repair

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	kubelettypes "k8s.io/kubelet/pkg/types"
	"k8s.io/utils/clock"

	"github.com/kubeslot/kubeslot/kubecri/claims"
	"github.com/kubeslot/kubeslot/kubecri/metrics"
	"github.com/kubeslot/kubeslot/kubecri/nodewriter"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/slot"
)

const (
	// stopGrace is how long a container that is stopped has to end by itself.
	stopGrace = 10 * time.Second
	// clearAfter is how long the node's condition stays after the last container without
	// its devices was seen: the kubelet waits up to five minutes before it creates one
	// again.
	clearAfter = 6 * time.Minute
	// reason of the pod's Event.
	reason = "StartedWithoutDevices"
)

// Runtime is what is asked of the runtime's CRI.
type Runtime interface {
	ContainerStatus(ctx context.Context, in *runtimeapi.ContainerStatusRequest, opts ...grpc.CallOption) (*runtimeapi.ContainerStatusResponse, error)
	StopContainer(ctx context.Context, in *runtimeapi.StopContainerRequest, opts ...grpc.CallOption) (*runtimeapi.StopContainerResponse, error)
}

// Config configures a Repairer. Everything but Metrics and Clock is required.
type Config struct {
	Node    string
	Runtime Runtime
	// Configuration returns the one that owns a name; nil for none. known is false while
	// the API server has not been read: then nothing is stopped.
	Configuration func(name string) (c *akriv0.Configuration, known bool)
	// PluginsMarkedSince is when kubecri began to mark containers on this node that
	// device plugins gave something. Older ones without slots are left alone.
	PluginsMarkedSince func() time.Time
	// Events records for pods; Conditions takes the node's condition.
	Events     record.EventRecorder
	Conditions *nodewriter.Writer
	// Advice says, for the condition, what is to be done about it.
	Advice  string
	Metrics *metrics.Metrics
	Clock   clock.PassiveClock
}

// Repairer finds and stops containers without their devices. Safe for concurrent use.
type Repairer struct {
	config Config

	mu sync.Mutex
	// whole are the containers that are known to have what they were assigned, if anything;
	// stopping those that are being stopped; recorded those that an
	// Event was recorded of. All by id, of containers that the runtime has.
	whole, stopping, recorded map[string]bool
	last                      time.Time // when one without its devices was last seen
}

// New makes a Repairer.
func New(config Config) (*Repairer, error) {
	if config.Node == "" || config.Runtime == nil || config.Configuration == nil || config.PluginsMarkedSince == nil || config.Events == nil || config.Conditions == nil {
		return nil, errors.New("repair: node, runtime, Configurations, the marks' time, event recorder and conditions are required")
	}
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	return &Repairer{config: config, whole: map[string]bool{}, stopping: map[string]bool{}, recorded: map[string]bool{}}, nil
}

// Inspect looks at the containers that the runtime has listed, and their sandboxes by id.
// It returns the ids of those that lack what they were assigned, and so use no slots, and
// begins to stop those that are to be. An id about which the runtime could not be asked is
// not among them.
func (r *Repairer) Inspect(ctx context.Context, containers []*runtimeapi.Container, sandboxes map[string]*runtimeapi.PodSandbox) map[string]bool {
	lacking := map[string]bool{}
	there := make(map[string]bool, len(containers))
	var latest *runtimeapi.Container // of those: the runtime lists them in any order
	for _, c := range containers {
		there[c.Id] = true
		if c.State != runtimeapi.ContainerState_CONTAINER_RUNNING && c.State != runtimeapi.ContainerState_CONTAINER_CREATED {
			continue
		}
		lack := r.lackOf(ctx, c, sandboxes[c.PodSandboxId].GetAnnotations())
		if lack.None() {
			continue
		}
		lacking[c.Id] = true
		if latest == nil || c.CreatedAt > latest.CreatedAt {
			latest = c
		}
		r.handle(ctx, c, lack)
	}
	r.mu.Lock()
	for _, ids := range []map[string]bool{r.whole, r.recorded} {
		maps.DeleteFunc(ids, func(id string, _ bool) bool { return !there[id] })
	}
	r.mu.Unlock()
	r.condition(latest)
	return lacking
}

// lackOf returns what a container lacks of what it was assigned, by its pod's annotations. It asks the runtime only
// about containers that were assigned something and do not show in CRI that they have it, each once.
func (r *Repairer) lackOf(ctx context.Context, c *runtimeapi.Container, podAnnotations map[string]string) Lack {
	r.mu.Lock()
	whole := r.whole[c.Id]
	r.mu.Unlock()
	// An assignment may be long, and is not read again. Without annotations the sandbox is not known yet.
	if whole || len(podAnnotations) == 0 {
		return Lack{}
	}
	lack := Of(r.config.Node, Container{claims.PodOf(c.Labels), podAnnotations,
		kubelettypes.GetContainerName(c.Labels), c.Annotations, c.CreatedAt}, r.config.PluginsMarkedSince())
	if !lack.None() {
		annotations, err := r.specAnnotations(ctx, c.Id)
		switch {
		case err != nil:
			klog.FromContext(ctx).V(2).Info("Cannot tell whether a container has its devices, trying again",
				"containerID", c.Id, "reason", err)
			return Lack{}
		case !given(annotations):
			return lack
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.whole[c.Id] = true
	return Lack{}
}

// specAnnotations are those of the container's OCI spec, to which NRI's belong. containerd
// and CRI-O both have the spec in the verbose status.
func (r *Repairer) specAnnotations(ctx context.Context, id string) (map[string]string, error) {
	status, err := r.config.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id, Verbose: true})
	if err != nil {
		return nil, fmt.Errorf("ask the runtime for the status of container %s: %w", id, err)
	}
	var info struct {
		RuntimeSpec *struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"runtimeSpec"`
	}
	if err := json.Unmarshal([]byte(status.GetInfo()["info"]), &info); err != nil {
		return nil, fmt.Errorf("the runtime's verbose status of container %s: %w", id, err)
	}
	if info.RuntimeSpec == nil {
		return nil, fmt.Errorf("the runtime's verbose status of container %s has no runtimeSpec", id)
	}
	return info.RuntimeSpec.Annotations, nil
}

// handle records an Event of a container that lacks something, once, and stops it.
func (r *Repairer) handle(ctx context.Context, c *runtimeapi.Container, lack Lack) {
	leave, known := r.leaves(lack)
	if !known {
		return // until the API server has been read
	}
	r.mu.Lock()
	first := !r.recorded[c.Id]
	r.recorded[c.Id] = true
	stop := !leave && !r.stopping[c.Id]
	if stop {
		r.stopping[c.Id] = true
	}
	r.mu.Unlock()
	pod, name := claims.PodOf(c.Labels), kubelettypes.GetContainerName(c.Labels)
	logger := klog.FromContext(ctx).WithValues("pod", klog.KRef(pod.Namespace, pod.Name), "container", name, "containerID", c.Id)
	if first {
		what := "is stopped, to be created again with its devices"
		if leave {
			what = "is left running without its devices, as its Configurations have it"
		}
		r.config.Metrics.StartedWithoutDevices()
		logger.Error(lack, "A container runs without its devices", "stopped", !leave)
		r.config.Events.Eventf(pod.Reference(), corev1.EventTypeWarning, reason,
			"Container %q %s: %v", name, what, lack)
	}
	if stop {
		go r.stop(context.WithoutCancel(klog.NewContext(ctx, logger)), c.Id)
	}
}

// leaves reports whether all Configurations of what is lacking leave such containers alone.
func (r *Repairer) leaves(lack Lack) (leave, known bool) {
	leave = len(lack.Slots) > 0 && len(lack.Plugins) == 0
	for _, g := range lack.Slots {
		name, _ := slot.SplitInstance(g.Slot.Instance)
		c, known := r.config.Configuration(name)
		if !known {
			return false, false
		}
		leave = leave && c != nil && c.Spec.MissingDevices == akriv0.MissingDevicesIgnore
	}
	return leave, true
}

// stop ends a container: the kubelet creates it again, if the pod's restartPolicy has it
// so. What fails is tried again when the container is next seen.
func (r *Repairer) stop(ctx context.Context, id string) {
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.stopping, id)
	}()
	ctx, cancel := context.WithTimeout(ctx, stopGrace+10*time.Second)
	defer cancel()
	_, err := r.config.Runtime.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: int64(stopGrace / time.Second)})
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot stop a container that runs without its devices, trying again")
	}
}

// Condition is True on a node where containers have lately bypassed kubecri, and so run without
// their devices or were stopped for it.
//
// Condition of Nodes. Written by kubecri. Read by kubectl-kubeslot, people.
const Condition = "kubeslot.io/ContainersWithoutDevices"

// condition has the node say which was seen: the latest container without its devices, nil for none.
func (r *Repairer) condition(latest *runtimeapi.Container) {
	now := r.config.Clock.Now()
	r.mu.Lock()
	if latest != nil {
		r.last = now
	}
	recent := !r.last.IsZero() && now.Sub(r.last) < clearAfter
	r.mu.Unlock()
	switch {
	case latest != nil:
		r.config.Conditions.Set(nodewriter.Condition{Type: Condition, Status: corev1.ConditionTrue,
			Reason: "CreatedPastKubecri",
			Message: fmt.Sprintf("the last seen is container %q of pod %s. %s",
				kubelettypes.GetContainerName(latest.Labels), claims.PodOf(latest.Labels), r.config.Advice)})
	case !recent:
		r.config.Conditions.Set(nodewriter.Condition{Type: Condition, Status: corev1.ConditionFalse,
			Reason:  "AllThroughKubecri",
			Message: "no container has bypassed kubecri lately"})
	}
}
