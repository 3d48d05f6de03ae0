package check

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"

	v0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// DevicePlugin is what device-plugin mode needs of the kubelet.
type DevicePlugin struct {
	// Directory is the kubelet's for device plugins.
	Directory string
	// PodResources is the kubelet's, and PodResourcesEndpoint is told to the reader.
	PodResources         podresourcesapi.PodResourcesListerClient
	PodResourcesEndpoint string
}

// devicePlugin checks the kubelet's two sockets, and that kubecri serves its own.
func (c *checker) devicePlugin(ctx context.Context) {
	if c.DevicePlugin == nil {
		return
	}
	socket := filepath.Join(c.DevicePlugin.Directory, "kubelet.sock")
	if err := dial(ctx, socket); err != nil {
		c.fail("kubelet", "takes no device plugins: %v. Is it running, and is --kubelet-device-plugin-dir its directory?", err)
	} else {
		c.ok("kubelet", "takes device plugins at %s", socket)
	}
	ours, _ := filepath.Glob(filepath.Join(c.DevicePlugin.Directory, "kubeslot-*.sock")) // the pattern is well-formed
	var dead []string
	for _, path := range ours {
		if err := dial(ctx, path); err != nil {
			dead = append(dead, err.Error())
		}
	}
	switch {
	case len(ours) == 0:
		c.note("kubelet", "has no device plugins of kubecri: it does not run, or there are no devices")
	case len(dead) > 0:
		c.fail("kubelet", "%d of %d sockets of kubecri are not served, so the node has none of their devices: kubecri does not run. %s", len(dead), len(ours), dead[0])
	default:
		c.ok("kubelet", "%d device plugins of kubecri are served", len(ours))
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if _, err := c.DevicePlugin.PodResources.List(ctx, &podresourcesapi.ListPodResourcesRequest{}); err != nil {
		c.fail("kubelet", "does not tell the devices of pods, so that no slot is released: %s: %v. Is --kubelet-pod-resources-socket its socket?", c.DevicePlugin.PodResourcesEndpoint, err)
		return
	}
	c.ok("kubelet", "tells the devices of pods at %s", c.DevicePlugin.PodResourcesEndpoint)
}

func dial(ctx context.Context, socket string) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return err
	}
	return conn.Close()
}

// advertised says what the node's object shows, and what this mode cannot keep.
func (c *checker) advertised() {
	for _, configuration := range c.configurations {
		if configuration.Spec.Unique() == v0.UniquePerPod {
			c.note("mode", "Configuration %s/%s has uniqueScope Pod, which device-plugin mode cannot keep: the node has no %s%s",
				configuration.Namespace, configuration.Name, assignment.ResourcePrefix, configuration.Name)
		}
	}
	if c.nodeError != nil {
		c.fail("mode", "node %s: %v", c.Node, c.nodeError)
		return
	}
	if !v1alpha1.ChoosesSlots(c.node) {
		c.fail("mode", "node %s lacks the label %s=%s, so Kubeslot's scheduler would assign slots there: kubecri has not run here in this mode yet, or may not patch nodes/status",
			c.Node, v1alpha1.ModeLabel, v1alpha1.ModeDevicePlugin)
	}
	var amounts []string
	for _, configuration := range c.configurations {
		name := corev1.ResourceName(assignment.ResourcePrefix + configuration.Name)
		if all, ok := c.node.Status.Capacity[name]; ok {
			healthy := c.node.Status.Allocatable[name]
			amounts = append(amounts, fmt.Sprintf("%s %d of %d", name, healthy.Value(), all.Value()))
		}
	}
	if len(amounts) == 0 {
		c.note("mode", "node %s has no amounts of Configurations", c.Node)
		return
	}
	slices.Sort(amounts)
	c.ok("mode", "node %s has %s", c.Node, strings.Join(amounts, ", "))
}

// allocated says which slots the kubelet has given the pod's containers.
func (c *checker) allocated(ctx context.Context, pod *corev1.Pod) {
	if pod.Status.Phase == corev1.PodFailed {
		c.fail("pod", "has failed: %s: %s", pod.Status.Reason, pod.Status.Message)
		return
	}
	if pod.Annotations[assignment.HolderAnnotation] != "" {
		c.note("pod", "has an assignment, which does not count on this node")
	}
	listed, err := c.DevicePlugin.PodResources.List(ctx, &podresourcesapi.ListPodResourcesRequest{})
	if err != nil {
		return // said before
	}
	slots := map[string]string{} // by level, Instance or Configuration, and id
	for i := range c.claimed {
		claim := &c.claimed[i]
		name, err := claim.Slot()
		if err != nil || claim.Spec.NodeName != c.Node || claim.Spec.Pod != nil {
			continue
		}
		resource := claim.Labels[v1alpha1.ConfigurationLabel]
		if claim.Spec.Level == v1alpha1.InstanceLevel {
			resource = name.Instance
		}
		slots[assignment.ResourcePrefix+resource+" "+claim.Spec.Holder] = claim.Name
	}
	found := false
	for _, p := range listed.PodResources {
		if p.Namespace != pod.Namespace || p.Name != pod.Name {
			continue
		}
		for _, container := range p.Containers {
			for _, d := range container.Devices {
				for _, id := range d.DeviceIds {
					if !strings.HasPrefix(d.ResourceName, assignment.ResourcePrefix) {
						continue
					}
					found = true
					if slot := slots[d.ResourceName+" "+id]; slot != "" {
						c.ok("container", "%s has slot %s for %s, as device %s", container.Name, slot, d.ResourceName, id)
					} else {
						c.fail("container", "%s has device %s of %s, of which this node has no SlotClaim: see kubecri's log", container.Name, id, d.ResourceName)
					}
				}
			}
		}
	}
	if !found {
		c.note("pod", "the kubelet lists no devices of it; it does not list those of init containers")
	}
}
