package cleanup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	apitypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kubeslot/kubeslot/kubecri/nodewriter"
	"github.com/kubeslot/kubeslot/types/assignment"
	clientset "github.com/kubeslot/kubeslot/types/client/clientset/versioned"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// patience is how long Node looks whether the kubelet puts back what was taken away.
type patience struct{ every, quiet, atMost time.Duration }

// Tests shorten them.
var (
	// usual is for a status that the kubelet was about to write, and had the keys still.
	usual = patience{time.Second, 2 * time.Second, 30 * time.Second}
	// devicePlugin is for a node whose kubelet knew our resources from device plugins. It
	// goes on writing them for five minutes after the last one ended
	// (endpointStopGracePeriod), every ten seconds.
	devicePlugin = patience{time.Second, 15 * time.Second, 7 * time.Minute}
)

// Node removes from the API what kubecri wrote of the node, and returns what it
// removed, a line each. A node that does not exist has nothing, and CRDs that do not
// exist no objects. Call it when no kubecri runs on the node, which would write it all
// again. Of a node in device-plugin mode it takes five minutes, until the kubelet has
// forgotten the device plugins. It needs: get of the node, patch of its status, list and delete of
// deviceslices and slotclaims.
func Node(ctx context.Context, kube kubernetes.Interface, client clientset.Interface, node string) (removed []string, err error) {
	var errs []error
	note := func(what string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("delete %s: %w", what, err))
			return
		}
		removed = append(removed, what)
	}
	mine := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String()}

	reports, err := client.KubeslotV1alpha1().DeviceSlices().List(ctx, mine)
	if err == nil {
		for i := range reports.Items {
			s := &reports.Items[i]
			if s.Spec.NodeName != node { // fake servers select nothing
				continue
			}
			err := gone(client.KubeslotV1alpha1().DeviceSlices().Delete(ctx, s.Name, metav1.DeleteOptions{}))
			note("deviceslice "+s.Name, err)
		}
	}
	errs = append(errs, about("list DeviceSlices of node "+node, gone(err)))
	claims, err := client.KubeslotV1alpha1().SlotClaims().List(ctx, mine)
	if err == nil {
		for i := range claims.Items {
			c := &claims.Items[i]
			if c.Spec.NodeName != node {
				continue
			}
			err := gone(client.KubeslotV1alpha1().SlotClaims().Delete(ctx, c.Name, metav1.DeleteOptions{}))
			note("slotclaim "+c.Name, err)
		}
	}
	errs = append(errs, about("list SlotClaims of node "+node, gone(err)))
	lease := v1alpha1.NodeLease(node)
	if err := kube.CoordinationV1().Leases(corev1.NamespaceNodeLease).Delete(ctx, lease, metav1.DeleteOptions{}); !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) { // the Node owns it
		note("lease "+lease, err)
	}
	done, err := status(ctx, kube, node) // last, for it may take all the time that there is
	return append(removed, slices.Sorted(maps.Keys(done))...), errors.Join(append(errs, err)...)
}

// Claimed says which slots the node has claimed, for a reader to know before Node deletes the claims; ""
// when there are none. Who uses them is not known here: kubecri, which asked the runtime, runs no more.
func Claimed(ctx context.Context, client clientset.Interface, node string) string {
	claims, err := client.KubeslotV1alpha1().SlotClaims().List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String()})
	if gone(err) != nil {
		return fmt.Sprintf("the SlotClaims of node %s cannot be listed: %v", node, err)
	}
	var held []string
	for i := range claims.Items {
		c := &claims.Items[i]
		if c.Spec.NodeName != node {
			continue
		}
		who := "pod not known"
		if seen := c.Annotations[v1alpha1.PodAnnotation]; seen != "" {
			who = fmt.Sprintf("pod %q", seen) // as a node has written it
		}
		if of := c.Spec.Pod; of != nil {
			who = "pod " + of.Namespace + "/" + of.Name
		} else if of := c.Spec.ResourceClaim; of != nil {
			who = "ResourceClaim " + of.Namespace + "/" + of.Name
		}
		held = append(held, fmt.Sprintf("%s (%s)", c.Name, who))
	}
	if len(held) == 0 {
		return ""
	}
	return fmt.Sprintf("%d slots are claimed here, and free for pods of other nodes once this is done, even while a container here still uses them: %s. "+
		"Drain node %s first, and see that `crictl ps` shows no container of these pods", len(held), strings.Join(held, ", "), node)
}

func about(what string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// gone is the error unless it says that there is no such thing.
func gone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// status takes keys and annotations from the node, until they stay away, and returns which it took.
// What says that more may come, and which resources are kubecri's, goes last: if this is interrupted, the
// next one needs it.
func status(ctx context.Context, kube kubernetes.Interface, name string) (removed map[string]bool, err error) {
	removed = map[string]bool{}
	began := time.Now()
	quiet, p := began, usual
	for {
		node, err := kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return removed, nil
		}
		if err != nil {
			return removed, fmt.Errorf("get node %s: %w", name, err)
		}
		if node.Labels[v1alpha1.ModeLabel] == v1alpha1.ModeDevicePlugin {
			p = devicePlugin
		}
		patch, what := statusPatch(node, false)
		last := patch == nil && (time.Since(quiet) >= p.quiet || len(removed) == 0 && p == usual)
		if last {
			patch, what = statusPatch(node, true)
		}
		if patch != nil {
			if !last && time.Since(began) > p.atMost {
				return removed, fmt.Errorf("node %s: somebody puts %s back: does a kubecri, or a device plugin for "+
					"it, run there still?", name, strings.Join(what, ", "))
			}
			if _, err := kube.CoreV1().Nodes().Patch(ctx, name, apitypes.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); gone(err) != nil {
				return removed, fmt.Errorf("patch the status of node %s: %w", name, err)
			}
			for _, w := range what {
				removed[w] = true
			}
			quiet = time.Now()
		}
		if last {
			return removed, nil
		}
		select {
		case <-ctx.Done():
			return removed, ctx.Err()
		case <-time.After(p.every):
		}
	}
}

// statusPatch returns a strategic merge patch that takes what is kubecri's from the node, and
// what that is; nil when there is nothing. The last one takes the node's mode and the names of device
// plugins' resources, too.
func statusPatch(node *corev1.Node, last bool) (patch []byte, what []string) {
	ours := map[corev1.ResourceName]bool{}
	for _, name := range v1alpha1.PluginResources(node) {
		ours[name] = true
	}
	labels, annotations := map[string]*string{}, map[string]*string{}
	capacity, allocatable := nodewriter.Quantities{}, nodewriter.Quantities{}
	itsLabels := strings.Split(node.Annotations[v1alpha1.PluginLabelsAnnotation], ",")
	itsAnnotations := []string{assignment.Annotation, v1alpha1.PluginLabelsAnnotation,
		v1alpha1.NRIPluginAnnotation, v1alpha1.KubecriNamespaceAnnotation}
	if last {
		itsLabels = append(itsLabels, v1alpha1.ModeLabel)
		itsAnnotations = append(itsAnnotations, v1alpha1.PluginResourcesAnnotation)
	}
	for _, key := range itsLabels {
		if _, has := node.Labels[key]; has {
			labels[key] = nil
			what = append(what, "label "+key)
		}
	}
	for _, key := range itsAnnotations {
		if _, has := node.Annotations[key]; has {
			annotations[key] = nil
			what = append(what, "annotation "+key)
		}
	}
	var conditions []any
	for _, c := range node.Status.Conditions {
		if strings.HasPrefix(string(c.Type), nodewriter.ConditionPrefix) {
			conditions = append(conditions, map[string]any{"type": c.Type, "$patch": "delete"})
			what = append(what, "condition "+string(c.Type))
		}
	}
	take := func(from corev1.ResourceList, list nodewriter.Quantities, label string) {
		for name := range from {
			if strings.HasPrefix(string(name), assignment.ResourcePrefix) || ours[name] {
				list[name] = nil
				what = append(what, label+" "+string(name))
			}
		}
	}
	take(node.Status.Capacity, capacity, "capacity")
	take(node.Status.Allocatable, allocatable, "allocatable")
	if len(what) == 0 {
		return nil, nil
	}
	slices.Sort(what)
	patch, err := json.Marshal(nodewriter.Patch{
		Metadata: nodewriter.Metadata{Labels: labels, Annotations: annotations},
		Status:   nodewriter.Status{Capacity: capacity, Allocatable: allocatable, Conditions: conditions},
	})
	if err != nil {
		panic(err) // strings and nils
	}
	return patch, what
}
