// Package nodemode writes to the Node in which mode its kubecri works, and as which NRI plugin.
// The scheduler reads that. The package also removes what another mode has left on the Node.
//
// In device-plugin mode it also writes the amounts of the node's device plugins into
// node.status. The kubelet writes the same amounts, but only every 10 s
// (nodeStatusUpdateFrequency). Until then a scheduler sends pods to slots that other nodes
// have taken, and those pods fail with UnexpectedAdmissionError.
package nodemode

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

const (
	// forgotten is how long after a device plugin's end the kubelet still writes its
	// resource into the node's status, as 0 (devicemanager, endpointStopGracePeriod, and a
	// minute). After that nobody takes the 0 away but us.
	forgotten = 6 * time.Minute
	// interval is how often the node is looked at besides on its changes.
	interval = time.Minute
	// minRetry and maxRetry bound the wait after a patch that failed.
	minRetry, maxRetry = time.Second, time.Minute

	// At most patchBurst patches follow each other, patchGap apart; after that one every
	// patchInterval. A thousand nodes may see the same device.
	patchBurst, patchGap, patchInterval = 10, 100 * time.Millisecond, time.Second

	// pluginResources is the annotation of the advertiser of the other modes.
	pluginResources = "kubeslot.io/plugin-resources"
)

// Config is what Run needs.
type Config struct {
	Node   string
	Client kubernetes.Interface
	// Nodes is this node.
	Nodes coreinformers.NodeInformer
	// NRIPlugin is the plugin's name in NRI mode, and PodNamespace that of the pod in which it
	// runs, if it does and the scheduler is to wait for it.
	NRIPlugin, PodNamespace string
	// Served, in device-plugin mode, returns the resources that the node has device plugins
	// of, by name; false while that is not known. nil in any other mode.
	Served func() (resources map[string]Amount, known bool)
	// Listed gets a value after amounts of Served have changed. It may be nil.
	Listed <-chan struct{}
}

// Amount is how many devices a device plugin has told the kubelet of.
type Amount struct {
	// Listed is false when the kubelet does not listen: then its own amounts stay.
	Listed bool
	// Capacity counts all devices, Allocatable the healthy ones.
	Capacity, Allocatable int
}

// Run keeps the Node as it is to be until ctx is done.
func Run(ctx context.Context, c Config) {
	logger := klog.FromContext(ctx).WithName("nodemode").WithValues("node", c.Node)
	changed := make(chan struct{}, 1)
	wake := func(any) {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	if _, err := c.Nodes.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: wake, UpdateFunc: func(_, obj any) { wake(obj) }}); err != nil {
		logger.Error(err, "The node's label is not kept", "label", v1alpha1.ModeLabel)
		return
	}
	if !cache.WaitFor(ctx, "", c.Nodes.Informer().HasSyncedChecker()) {
		return
	}
	k := keeper{Config: c, last: map[string]time.Time{}, limit: flowcontrol.NewTokenBucketRateLimiter(float32(1/patchInterval.Seconds()), patchBurst)}
	backoff := retries()
	for {
		next := interval
		if err := k.keep(ctx); err != nil && ctx.Err() == nil {
			next = backoff.Step()
			logger.Error(err, "Cannot change the node, trying again", "after", next.Round(time.Second))
		} else {
			backoff = retries()
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-c.Listed:
		case <-time.After(next):
		}
	}
}

// keeper is what Run remembers.
type keeper struct {
	Config
	last  map[string]time.Time // when a resource was last served, or first seen
	limit flowcontrol.RateLimiter
	wrote *corev1.Node // as the last patch left it
}

func retries() wait.Backoff {
	return wait.Backoff{Duration: minRetry, Factor: 2, Jitter: 0.2, Steps: 7, Cap: maxRetry}
}

func (k *keeper) keep(ctx context.Context) error {
	for waited := false; ; waited = true {
		node, err := k.node()
		if node == nil {
			return err
		}
		v := view{node: node, nriPlugin: k.NRIPlugin, podNamespace: k.PodNamespace, now: time.Now(), last: k.last}
		if k.Served != nil {
			v.chooses = true
			v.served, v.known = k.Served()
		}
		patch, err := plan(v)
		if err != nil || patch == nil {
			return err
		}
		if !waited { // then by what is known after the wait
			if err := k.limit.Wait(ctx); err != nil {
				return err
			}
			continue
		}
		if k.wrote, err = k.Client.CoreV1().Nodes().Patch(ctx, k.Node, apitypes.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
			k.wrote = nil
			return fmt.Errorf("patch node %s: %w", k.Node, err)
		}
		klog.FromContext(ctx).V(2).Info("Changed the node", "node", k.Node, "patch", string(patch))
		select {
		case <-time.After(patchGap):
		case <-ctx.Done():
		}
		return nil
	}
}

// node is the newest that is known, nil for none: its event will come.
func (k *keeper) node() (*corev1.Node, error) {
	node, err := k.Nodes.Lister().Get(k.Node)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read node %s: %w", k.Node, err)
	case k.wrote != nil && k.wrote.UID == node.UID && version(k.wrote) > version(node):
		return k.wrote, nil
	}
	k.wrote = nil
	return node, nil
}

func version(n *corev1.Node) uint64 {
	v, _ := strconv.ParseUint(n.ResourceVersion, 10, 64)
	return v
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

// plan returns a strategic merge patch of the node's status subresource, nil for none.
func plan(v view) ([]byte, error) {
	labels, annotations, capacity, allocatable := map[string]any{}, map[string]any{}, map[string]any{}, map[string]any{}
	has := v.node.Labels[v1alpha1.ModeLabel]
	switch {
	case v.chooses && has != v1alpha1.ModeDevicePlugin:
		labels[v1alpha1.ModeLabel] = v1alpha1.ModeDevicePlugin
	case !v.chooses && has == v1alpha1.ModeDevicePlugin:
		labels[v1alpha1.ModeLabel] = nil
	}
	for key, value := range map[string]string{v1alpha1.NRIPluginAnnotation: v.nriPlugin, v1alpha1.KubecriNamespaceAnnotation: v.podNamespace} {
		switch has, is := v.node.Annotations[key]; {
		case value != "" && has != value:
			annotations[key] = value
		case value == "" && is:
			annotations[key] = nil
		}
	}
	if v.chooses {
		for _, name := range leftovers(v, annotations) {
			capacity[name], allocatable[name] = nil, nil
		}
		for name, amount := range v.served {
			if v.known && amount.Listed {
				correct(capacity, v.node.Status.Capacity, name, amount.Capacity)
				correct(allocatable, v.node.Status.Allocatable, name, amount.Allocatable)
			}
		}
	}
	metadata, status, patch := map[string]any{}, map[string]any{}, map[string]any{}
	if v.nriPlugin == "" && slices.ContainsFunc(v.node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == v1alpha1.StartsWithoutKubecri }) {
		status["conditions"] = []any{map[string]any{"type": v1alpha1.StartsWithoutKubecri, "$patch": "delete"}}
	}
	set(metadata, "labels", labels)
	set(metadata, "annotations", annotations)
	set(status, "capacity", capacity)
	set(status, "allocatable", allocatable)
	set(patch, "metadata", metadata)
	set(patch, "status", status)
	if len(patch) == 0 {
		return nil, nil
	}
	data, err := json.Marshal(patch)
	return data, err
}

// correct enters the amount if the node has another.
func correct(in map[string]any, has corev1.ResourceList, name string, amount int) {
	if q, ok := has[corev1.ResourceName(name)]; !ok || q.Value() != int64(amount) {
		in[name] = strconv.Itoa(amount)
	}
}

// leftovers finds the amounts that the advertiser of the other modes has written, and the
// zeros that kubelets leave of plugins that are gone. An amount that nobody serves would
// draw pods. It enters the annotations that are to go.
func leftovers(v view, annotations map[string]any) (amounts []string) {
	status := v.node.Status
	for name := range strings.SplitSeq(v.node.Annotations[pluginResources], ",") {
		if _, ok := status.Capacity[corev1.ResourceName(name)]; ok && name != "" {
			amounts = append(amounts, name)
		}
	}
	for _, annotation := range []string{assignment.Annotation, pluginResources} {
		if _, ok := v.node.Annotations[annotation]; ok {
			annotations[annotation] = nil
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
			amounts = append(amounts, string(name))
		}
	}
	return amounts
}

func set(in map[string]any, key string, value map[string]any) {
	if len(value) > 0 {
		in[key] = value
	}
}
