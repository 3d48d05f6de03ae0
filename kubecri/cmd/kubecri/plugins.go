package main

import (
	"context"
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/kubecri/metrics"
	"github.com/kubeslot/kubeslot/kubecri/nodewriter"
	"github.com/kubeslot/kubeslot/kubecri/soplugins"
	"github.com/kubeslot/kubeslot/plugins/load"
	"github.com/kubeslot/kubeslot/types/device"
)

// reasonRefused is of the node's event about a file that was not loaded.
const reasonRefused = "BadDevicePlugin"

// eventTimeout bounds the last words of a process that does not start.
const eventTimeout = 3 * time.Second

// loadPlugins loads the plugins of --cridevices. Each bad file is logged and
// counted; under policy refuse it is an error, of which the node gets an event.
func loadPlugins(ctx context.Context, o *options, kube kubernetes.Interface, numbers *metrics.Metrics) ([]load.Plugin[device.Device], []*load.FileError, error) {
	logger := klog.FromContext(ctx)
	loaded, bad, err := load.Directory(o.devices, load.Devices, load.Options{Policy: o.devicesPolicy, Timeout: o.devicesTimeout})
	counts := map[string]int{}
	for _, file := range bad {
		logger.Error(file, "A device plugin is not loaded", "file", file.File, "policy", o.devicesPolicy.String())
		for _, finding := range file.Findings {
			counts[string(finding.Reason)]++
		}
	}
	var reasons []string
	for _, reason := range load.Reasons() {
		reasons = append(reasons, string(reason))
	}
	numbers.BadSOPlugins(reasons, counts)
	if err == nil {
		return loaded, bad, nil
	}
	ctx, cancel := context.WithTimeout(ctx, eventTimeout)
	defer cancel()
	for _, file := range bad {
		if err := lastWords(ctx, kube, o.nodeName, fmt.Sprintf("kubecri does not start: %v", file)); err != nil {
			logger.Error(err, "The node's event could not be written")
			break
		}
	}
	return nil, nil, fmt.Errorf("--cridevices %s: %w", o.devices, err)
}

// lastWords writes an event of the node at once: a recorder would do so later.
// systemd starts the process again and again, so it is always the same event.
func lastWords(ctx context.Context, kube kubernetes.Interface, node, message string) error {
	hash := fnv.New64a()
	fmt.Fprint(hash, message)
	now := metav1.Now()
	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: fmt.Sprintf("%s.kubecri-%x", node, hash.Sum64())},
		InvolvedObject: *soplugins.NodeReference(node),
		Type:           corev1.EventTypeWarning, Reason: reasonRefused, Message: message,
		Source:         corev1.EventSource{Component: "kubecri", Host: node},
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}
	events := kube.CoreV1().Events(event.Namespace)
	_, err := events.Create(ctx, event, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		patch := fmt.Appendf(nil, `{"lastTimestamp":%q}`, now.UTC().Format(time.RFC3339))
		_, err = events.Patch(ctx, event.Name, apitypes.MergePatchType, patch, metav1.PatchOptions{})
	}
	return err
}

// notLoaded says of each bad file which it is, and why.
func notLoaded(bad []*load.FileError) []string {
	var all []string
	for _, file := range bad {
		all = append(all, file.Error())
	}
	return all
}

// notLoadedCondition is True while files of --cridevices were not loaded: pods that need one of them are refused.
//
// Condition of Nodes. Written by kubecri. Read by kubectl-kubeslot, people.
const notLoadedCondition = "kubeslot.io/DevicePluginsNotLoaded"

// pluginsCondition has the node say which files were not loaded.
func pluginsCondition(bad []*load.FileError) nodewriter.Condition {
	if len(bad) == 0 {
		return nodewriter.Condition{Type: notLoadedCondition, Status: corev1.ConditionFalse, Reason: "AllLoaded",
			Message: "all files of --cridevices are loaded"}
	}
	return nodewriter.Condition{Type: notLoadedCondition, Status: corev1.ConditionTrue, Reason: reasonRefused,
		Message: "pods that need one of these files are refused: " + strings.Join(notLoaded(bad), "; ")}
}

// recordBadPlugins has the node say which files were skipped.
func (n *node) recordBadPlugins() {
	for _, file := range n.badPlugins {
		n.cluster.events.Eventf(soplugins.NodeReference(n.cluster.node), corev1.EventTypeWarning, reasonRefused,
			"kubecri runs without it: %v", file)
	}
}

// startPlugins loads and starts them for a check, until ctx is done: what kubecri
// would do with the bad ones is not for them to say.
func startPlugins(ctx context.Context, o *options) (*soplugins.Plugins, error) {
	loaded, _, err := load.Directory(o.devices, load.Devices, load.Options{Policy: load.Skip, Timeout: o.devicesTimeout})
	if err != nil {
		return nil, fmt.Errorf("--cridevices: %w", err)
	}
	plugins, err := soplugins.New(soplugins.Config{Node: o.nodeName, Loaded: loaded, Timeout: o.devicesTimeout,
		Remote: o.remote}) // who holds devices is kubecri's to say
	if err != nil {
		return nil, err
	}
	go plugins.Run(klog.NewContext(ctx, klog.Logger{})) // the check says what goes wrong
	plugins.Tried(ctx)
	return plugins, nil
}
