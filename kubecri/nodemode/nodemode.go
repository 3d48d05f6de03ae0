// Package nodemode has a Node say in which mode its kubecri works, which the scheduler
// reads, and takes away what another mode has left on the Node.
package nodemode

import (
	"context"
	"encoding/json"
	"fmt"
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

	// pluginResources is the annotation of the advertiser of the other modes.
	pluginResources = "kubeslot.io/plugin-resources"
)

// Config is what Run needs.
type Config struct {
	Node   string
	Client kubernetes.Interface
	// Nodes is this node.
	Nodes coreinformers.NodeInformer
	// Served, in device-plugin mode, returns the resources that the node has device plugins
	// of; false while that is not known. nil in any other mode.
	Served func() (resources map[string]bool, known bool)
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
	last := map[string]time.Time{} // when a resource was last served, or first seen
	backoff := retries()
	for {
		next := interval
		if err := c.keep(ctx, last); err != nil && ctx.Err() == nil {
			next = backoff.Step()
			logger.Error(err, "Cannot change the node, trying again", "after", next.Round(time.Second))
		} else {
			backoff = retries()
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-time.After(next):
		}
	}
}

func retries() wait.Backoff {
	return wait.Backoff{Duration: minRetry, Factor: 2, Jitter: 0.2, Steps: 7, Cap: maxRetry}
}

func (c *Config) keep(ctx context.Context, last map[string]time.Time) error {
	node, err := c.Nodes.Lister().Get(c.Node)
	if apierrors.IsNotFound(err) {
		return nil // its event will come
	}
	if err != nil {
		return fmt.Errorf("read node %s: %w", c.Node, err)
	}
	v := view{node: node, now: time.Now(), last: last}
	if c.Served != nil {
		v.chooses = true
		v.served, v.known = c.Served()
	}
	patch, err := plan(v)
	if err != nil || patch == nil {
		return err
	}
	if _, err := c.Client.CoreV1().Nodes().Patch(ctx, c.Node, apitypes.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		return fmt.Errorf("patch node %s: %w", c.Node, err)
	}
	klog.FromContext(ctx).V(2).Info("Changed the node", "node", c.Node, "patch", string(patch))
	return nil
}

// view is all that plan goes by.
type view struct {
	node *corev1.Node
	// chooses is true in device-plugin mode. The rest is of this mode alone.
	chooses bool
	// served are the resources that there are device plugins of, when known.
	served map[string]bool
	known  bool
	now    time.Time
	// last is when a resource was last served, or first seen unserved; plan keeps it.
	last map[string]time.Time
}

// plan returns a merge patch of the node's status subresource, nil for none.
func plan(v view) ([]byte, error) {
	labels, annotations, amounts := map[string]any{}, map[string]any{}, map[string]any{}
	has := v.node.Labels[v1alpha1.ModeLabel]
	switch {
	case v.chooses && has != v1alpha1.ModeDevicePlugin:
		labels[v1alpha1.ModeLabel] = v1alpha1.ModeDevicePlugin
	case !v.chooses && has == v1alpha1.ModeDevicePlugin:
		labels[v1alpha1.ModeLabel] = nil
	}
	if v.chooses {
		leftovers(v, annotations, amounts)
	}
	if len(labels)+len(annotations)+len(amounts) == 0 {
		return nil, nil
	}
	metadata, patch := map[string]any{}, map[string]any{}
	set(metadata, "labels", labels)
	set(metadata, "annotations", annotations)
	set(patch, "metadata", metadata)
	if len(amounts) > 0 {
		patch["status"] = map[string]any{"capacity": amounts, "allocatable": amounts}
	}
	data, err := json.Marshal(patch)
	return data, err
}

// leftovers removes what the advertiser of the other modes has written, and the zeros that
// kubelets leave of plugins that are gone. An amount that nobody serves would draw pods.
func leftovers(v view, annotations, amounts map[string]any) {
	status := v.node.Status
	for name := range strings.SplitSeq(v.node.Annotations[pluginResources], ",") {
		if _, ok := status.Capacity[corev1.ResourceName(name)]; ok && name != "" {
			amounts[name] = nil
		}
	}
	for _, annotation := range []string{assignment.Annotation, pluginResources} {
		if _, ok := v.node.Annotations[annotation]; ok {
			annotations[annotation] = nil
		}
	}
	if !v.known {
		return
	}
	for name := range status.Capacity {
		if !strings.HasPrefix(string(name), assignment.ResourcePrefix) {
			continue
		}
		_, seen := v.last[string(name)]
		if v.served[string(name)] || !seen {
			v.last[string(name)] = v.now
		}
		allocatable := status.Allocatable[name]
		if !v.served[string(name)] && (!allocatable.IsZero() || v.now.Sub(v.last[string(name)]) >= forgotten) {
			amounts[string(name)] = nil
		}
	}
}

func set(in map[string]any, key string, value map[string]any) {
	if len(value) > 0 {
		in[key] = value
	}
}
