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
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/kubeslot/kubeslot/kubecri/nodewriter"
	"github.com/kubeslot/kubeslot/types/assignment"
	clientset "github.com/kubeslot/kubeslot/types/client/clientset/versioned"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// patience is how long Node looks whether the kubelet puts back what was taken away.
type patience struct{ quiet, atMost time.Duration }

// Tests shorten them.
var (
	every = time.Second
	// usual is for a status that the kubelet was about to write, and had the keys still.
	usual = patience{2 * time.Second, 30 * time.Second}
	// devicePlugin is for a node whose kubelet knew our resources from device plugins. It
	// goes on writing them for five minutes after the last one ended
	// (endpointStopGracePeriod), every ten seconds.
	devicePlugin = patience{15 * time.Second, 7 * time.Minute}
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
	objects := client.KubeslotV1alpha1()
	reports, err := objects.DeviceSlices().List(ctx, ofNode(node))
	errs = append(errs, about("list DeviceSlices of node "+node, gone(err)))
	for _, s := range reports.Items {
		if s.Spec.NodeName == node { // fake servers select nothing
			note("deviceslice "+s.Name, gone(objects.DeviceSlices().Delete(ctx, s.Name, metav1.DeleteOptions{})))
		}
	}
	claims, err := claimsOf(ctx, client, node)
	errs = append(errs, about("list SlotClaims of node "+node, err))
	for _, c := range claims {
		note("slotclaim "+c.Name, gone(objects.SlotClaims().Delete(ctx, c.Name, metav1.DeleteOptions{})))
	}
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
	claims, err := claimsOf(ctx, client, node)
	if err != nil {
		return fmt.Sprintf("the SlotClaims of node %s cannot be listed: %v", node, err)
	}
	var held []string
	for _, c := range claims {
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

// claimsOf returns the node's SlotClaims.
func claimsOf(ctx context.Context, client clientset.Interface, node string) ([]v1alpha1.SlotClaim, error) {
	list, err := client.KubeslotV1alpha1().SlotClaims().List(ctx, ofNode(node))
	return slices.DeleteFunc(list.Items, func(c v1alpha1.SlotClaim) bool { return c.Spec.NodeName != node }), gone(err)
}

func ofNode(node string) metav1.ListOptions {
	return metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String()}
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
	err = wait.PollUntilContextCancel(ctx, every, true, func(ctx context.Context) (done bool, err error) {
		node, err := kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		if err != nil {
			return false, fmt.Errorf("get node %s: %w", name, err)
		}
		if node.Labels[v1alpha1.ModeLabel] == v1alpha1.ModeDevicePlugin {
			p = devicePlugin
		}
		patch, what := statusPatch(node, false)
		last := patch.IsZero() && (time.Since(quiet) >= p.quiet || len(removed) == 0 && p == usual)
		if last {
			patch, what = statusPatch(node, true)
		}
		if patch.IsZero() {
			return last, nil
		}
		if !last && time.Since(began) > p.atMost {
			return false, fmt.Errorf("node %s: somebody puts %s back: does a kubecri, or a device plugin for "+
				"it, run there still?", name, strings.Join(what, ", "))
		}
		data, err := json.Marshal(patch)
		if err == nil {
			_, err = kube.CoreV1().Nodes().Patch(ctx, name, apitypes.StrategicMergePatchType, data,
				metav1.PatchOptions{},
				"status")
		}
		if gone(err) != nil {
			return false, fmt.Errorf("patch the status of node %s: %w", name, err)
		}
		for _, w := range what {
			removed[w] = true
		}
		quiet = time.Now()
		return last, nil
	})
	return removed, err
}

// statusPatch returns a strategic merge patch that takes what is kubecri's from the node, and
// what that is. The last one takes the node's mode and the names of device
// plugins' resources, too.
func statusPatch(node *corev1.Node, last bool) (p nodewriter.Patch, what []string) {
	labels := strings.Split(node.Annotations[v1alpha1.PluginLabelsAnnotation], ",")
	annotations := []string{assignment.Annotation, v1alpha1.PluginLabelsAnnotation,
		v1alpha1.NRIPluginAnnotation, v1alpha1.KubecriNamespaceAnnotation}
	if last {
		labels = append(labels, v1alpha1.ModeLabel)
		annotations = append(annotations, v1alpha1.PluginResourcesAnnotation)
	}
	plugins := v1alpha1.PluginResources(node)
	resources := func(name corev1.ResourceName) bool {
		return strings.HasPrefix(string(name), assignment.ResourcePrefix) || slices.Contains(plugins, name)
	}
	among := func(keys []string) func(string) bool {
		return func(key string) bool { return slices.Contains(keys, key) }
	}
	p.Metadata.Labels = without(node.Labels, among(labels), "label", &what)
	p.Metadata.Annotations = without(node.Annotations, among(annotations), "annotation", &what)
	p.Status.Capacity = without(node.Status.Capacity, resources, "capacity", &what)
	p.Status.Allocatable = without(node.Status.Allocatable, resources, "allocatable", &what)
	for _, c := range node.Status.Conditions {
		if strings.HasPrefix(string(c.Type), nodewriter.ConditionPrefix) {
			p.Status.Conditions = append(p.Status.Conditions, map[string]any{"type": c.Type, "$patch": "delete"})
			what = append(what, "condition "+string(c.Type))
		}
	}
	slices.Sort(what)
	return p, what
}

// without returns what removes those of the keys that are ours, and adds them to all.
func without[V any, K ~string](has map[K]V, ours func(K) bool, kind string, all *[]string) map[K]*V {
	removed := map[K]*V{}
	for key := range has {
		if ours(key) {
			removed[key] = nil
			*all = append(*all, kind+" "+string(key))
		}
	}
	return removed
}
