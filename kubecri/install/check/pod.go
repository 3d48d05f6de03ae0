package check

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeslot/kubeslot/kubecri/admit"
	"github.com/kubeslot/kubeslot/kubecri/cdi"
	"github.com/kubeslot/kubeslot/kubecri/claims"
	"github.com/kubeslot/kubeslot/kubecri/inject"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/slot"
)

// pod says of each container what it would get, or why it would be refused.
func (c *checker) pod(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	namespace, name, ok := strings.Cut(c.Pod, "/")
	if !ok {
		namespace, name = metav1.NamespaceDefault, c.Pod
	}
	pod, err := c.Kube.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case err != nil:
		c.fail("pod", "%s/%s: %v", namespace, name, err)
	case pod.Spec.NodeName == "":
		c.fail("pod", "%s/%s is not bound to a node yet: see its events", namespace, name)
	case pod.Spec.NodeName != c.Node:
		c.fail("pod", "%s/%s is on node %s, not %s: check it there", namespace, name, pod.Spec.NodeName, c.Node)
	default:
		c.ok("pod", "%s/%s is on this node", namespace, name)
		if c.DevicePlugin != nil {
			c.allocated(ctx, pod)
			return
		}
		for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
			for i := range containers {
				c.container(ctx, pod, containers[i].Name)
			}
		}
	}
}

func (c *checker) container(ctx context.Context, pod *corev1.Pod, container string) {
	what, err := admit.Explain(c.Node, pod, container, c.Plugins.Gives, c.Verifier)
	if err != nil {
		c.fail("container", "%s would be refused: %v", container, err)
		return
	}
	if what.Ignored != nil {
		c.note("container", "%s starts without devices: %v", container, what.Ignored)
		return
	}
	if what.Assigned != nil {
		c.plugged(ctx, container, what.Assigned)
	}
	request := what.Request
	if len(request.Grants) == 0 && len(request.Requested) == 0 {
		if what.Assigned == nil {
			c.ok("container", "%s gets no devices and requests none", container)
		}
		return
	}
	for _, g := range request.Grants {
		if _, ok := c.reached[g.Slot.Instance]; !ok {
			c.fail("container", "%s would be refused: Instance %s cannot be reached from this node", container, g.Slot.Instance)
			return
		}
	}
	holds, err := claims.Explain(ctx, c.Client, claims.NamespacesOf(c.Kube), c.configurations, c.Node, request)
	if err != nil {
		c.fail("container", "%s would be refused: %v", container, err)
		return
	}
	for _, g := range request.Grants {
		c.ok("container", "%s gets %s", container, c.describe(pod, g, holds[g.Slot]))
	}
}

// describe says what a slot brings. Mounts and device nodes are not in DeviceSlices;
// the running kubecri has them from its discovery handler.
func (c *checker) describe(pod *corev1.Pod, g assignment.Grant, holds bool) string {
	claim := "which is free"
	if holds {
		claim = "which it holds"
	}
	device := c.reached[g.Slot.Instance]
	configuration := claims.Owner(c.configurations, device.Configuration.Name)
	variables := slices.Collect(maps.Keys(device.Properties))
	variables = slices.AppendSeq(variables, maps.Keys(configuration.Spec.BrokerProperties))
	slices.Sort(variables)
	variables = slices.Compact(variables)
	broker := pod.Labels[akriv0.BrokerLabel] == configuration.Name
	_, hash := slot.SplitInstance(g.Slot.Instance)
	for i, name := range variables {
		if !configuration.Spec.MayBeVariable(name) && !(broker && configuration.Spec.MayBeBrokerVariable(name)) {
			variables[i] = name + "_" + strings.ToUpper(hash)
		}
	}
	return fmt.Sprintf("slot %s for %s%s, %s: CDI device %s, environment %s",
		g.Slot, assignment.ResourcePrefix, g.Resource, claim, cdi.Name(g.Slot.Instance), strings.Join(append(variables, inject.DevicesEnv), " "))
}
