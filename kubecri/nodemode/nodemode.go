// Package nodemode has the Node say in which mode its kubecri works, and as which NRI plugin.
// The scheduler reads that. It also removes what another mode has left there.
//
// In device-plugin mode it also writes the amounts of the node's device plugins into
// node.status. The kubelet writes the same amounts, but only every 10 s
// (nodeStatusUpdateFrequency). Until then a scheduler sends pods to slots that other nodes
// have taken, and those pods fail with UnexpectedAdmissionError.
package nodemode

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeslot/kubeslot/kubecri/nodewriter"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

const (
	// forgotten is how long after a device plugin's end the kubelet still writes its
	// resource into the node's status, as 0 (devicemanager, endpointStopGracePeriod, and a
	// minute). After that nobody takes the 0 away but us.
	forgotten = 6 * time.Minute
)

// Config says in which mode kubecri works.
type Config struct {
	// NRIPlugin is the plugin's name in NRI mode, and PodNamespace returns that of the pod in which it
	// runs; "" if it does not, or the scheduler is not to wait for it. It may be nil.
	NRIPlugin    string
	PodNamespace func(context.Context) string
	// Served, in device-plugin mode, returns the resources that the node has device plugins
	// of, by name; false while that is not known. nil in any other mode. The Node's writer is to be woken
	// after they have changed.
	Served func() (resources map[string]Amount, known bool)
}

// Amount is how many devices a device plugin has told the kubelet of.
type Amount struct {
	// Listed is false when the kubelet does not listen: then its own amounts stay.
	Listed bool
	// Capacity counts all devices, Allocatable the healthy ones.
	Capacity, Allocatable int
}

// Plan returns the part of the Node's writer.
func (c Config) Plan() nodewriter.Plan {
	last := map[string]time.Time{}
	return func(ctx context.Context, node *corev1.Node) (nodewriter.Patch, time.Duration, error) {
		v := view{node: node, nriPlugin: c.NRIPlugin, now: time.Now(), last: last}
		if c.PodNamespace != nil {
			v.podNamespace = c.PodNamespace(ctx)
		}
		if c.Served != nil {
			v.chooses = true
			v.served, v.known = c.Served()
		}
		return plan(v), 0, nil
	}
}

// view is all that plan goes by.
type view struct {
	node *corev1.Node
	// In NRI mode.
	nriPlugin, podNamespace string
	// chooses is true in device-plugin mode. The rest is of this mode alone.
	chooses bool
	// served are the resources that there are device plugins of, when known.
	served map[string]Amount
	known  bool
	now    time.Time
	// last is when a resource was last served, or first seen unserved; plan keeps it.
	last map[string]time.Time
}

// plan returns what is to change.
func plan(v view) (p nodewriter.Patch) {
	labels := map[string]string{}
	annotations := map[string]string{v1alpha1.NRIPluginAnnotation: v.nriPlugin,
		v1alpha1.KubecriNamespaceAnnotation: v.podNamespace}
	if v.chooses { // what the advertiser of the other modes has written goes
		for key := range strings.SplitSeq(v.node.Annotations[v1alpha1.PluginLabelsAnnotation], ",") {
			labels[key] = ""
		}
		for _, key := range []string{assignment.Annotation, v1alpha1.PluginResourcesAnnotation,
			v1alpha1.PluginLabelsAnnotation} {
			annotations[key] = ""
		}
		labels[v1alpha1.ModeLabel] = v1alpha1.ModeDevicePlugin
	} else if v.node.Labels[v1alpha1.ModeLabel] == v1alpha1.ModeDevicePlugin {
		labels[v1alpha1.ModeLabel] = ""
	}
	p.Metadata = nodewriter.Metadata{Labels: nodewriter.Say(v.node.Labels, labels),
		Annotations: nodewriter.Say(v.node.Annotations, annotations)}
	if v.nriPlugin == "" && slices.ContainsFunc(v.node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == v1alpha1.StartsWithoutKubecri }) {
		p.Status.Conditions = []any{map[string]any{"type": v1alpha1.StartsWithoutKubecri, "$patch": "delete"}}
	}
	if !v.chooses {
		return p
	}
	p.Status.Capacity, p.Status.Allocatable = nodewriter.Quantities{}, nodewriter.Quantities{}
	for _, name := range leftovers(v) {
		p.Status.Capacity[name], p.Status.Allocatable[name] = nil, nil
	}
	for name, amount := range v.served {
		if v.known && amount.Listed {
			correct(p.Status.Capacity, v.node.Status.Capacity, corev1.ResourceName(name), amount.Capacity)
			correct(p.Status.Allocatable, v.node.Status.Allocatable, corev1.ResourceName(name), amount.Allocatable)
		}
	}
	return p
}

// correct enters the amount if the node has another.
func correct(in nodewriter.Quantities, has corev1.ResourceList, name corev1.ResourceName, amount int) {
	if q, ok := has[name]; !ok || q.Value() != int64(amount) {
		in[name] = resource.NewQuantity(int64(amount), resource.DecimalSI)
	}
}

// leftovers finds the amounts that the advertiser of the other modes has written, and the
// zeros that kubelets leave of plugins that are gone. An amount that nobody serves would
// draw pods.
func leftovers(v view) (amounts []corev1.ResourceName) {
	status := v.node.Status
	for _, name := range v1alpha1.PluginResources(v.node) {
		if _, ok := status.Capacity[name]; ok {
			amounts = append(amounts, name)
		}
	}
	if !v.known {
		return amounts
	}
	maps.DeleteFunc(v.last, func(name string, _ time.Time) bool {
		_, has := status.Capacity[corev1.ResourceName(name)]
		return !has
	})
	for name := range status.Capacity {
		if !strings.HasPrefix(string(name), assignment.ResourcePrefix) {
			continue
		}
		_, seen := v.last[string(name)]
		_, served := v.served[string(name)]
		if served || !seen {
			v.last[string(name)] = v.now
		}
		allocatable := status.Allocatable[name]
		if !served && (!allocatable.IsZero() || v.now.Sub(v.last[string(name)]) >= forgotten) {
			amounts = append(amounts, name)
		}
	}
	return amounts
}
