// Package uninstall cleans up after `helm uninstall` has deleted the chart's objects: it
// removes from the nodes, and from the API server, what Kubeslot's programs created.
package uninstall

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/client/clientset/versioned"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// Config says what to remove. All fields are required but Pod.
type Config struct {
	// Release and Namespace are of the release that goes.
	Release, Namespace string
	// Pod is run once on each node that its nodeSelector and node affinity select, which are kubecri's,
	// and removes the files that kubecri left there. Its name and node are set here. It has no rights: what
	// runs on every node must not. nil where kubecri is not the release's, or nodes are to stay as they are.
	Pod *corev1.Pod
	// CleanNode removes what the API server has of a node, and returns what that was. A
	// kubelet may put things back for a while.
	CleanNode func(ctx context.Context, node string) ([]string, error)
	Kube      kubernetes.Interface
	Client    versioned.Interface
	// Parallel is how many nodes are cleaned at a time.
	Parallel int
	// Interval is between two looks at the same thing.
	Interval time.Duration
	Out      io.Writer
}

// lastWords is how long may be used when the time for pods is over.
const lastWords = 15 * time.Second

// Run removes everything, and returns an error that says what is left and why. What can be
// removed is removed in any case. When ctx ends it waits for no more pods.
func Run(ctx context.Context, config Config) error {
	u := &uninstall{Config: config}
	errs := []error{u.awaitPods(ctx)}
	if u.Pod != nil {
		errs = append(errs, u.prepared(ctx), u.nodes(ctx))
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWords)
	defer cancel()
	errs = append(errs, u.configurations(end), u.notReady(end), u.leases(end), u.dra(end))
	return errors.Join(errs...)
}

type uninstall struct {
	Config
	mu sync.Mutex // guards Out
}

func (u *uninstall) say(format string, args ...any) {
	u.mu.Lock()
	defer u.mu.Unlock()
	fmt.Fprintf(u.Out, format+"\n", args...)
}

// awaitPods waits until the release's pods have ended: a kubecri would write again what is
// removed here. An API server that is away for a while ends nothing.
func (u *uninstall) awaitPods(ctx context.Context) error {
	var left []string
	var failed error
	err := wait.PollUntilContextCancel(ctx, u.Interval, true, func(ctx context.Context) (bool, error) {
		left, failed = u.runningPods(ctx)
		return failed == nil && len(left) == 0, nil
	})
	if len(left) > 0 {
		return fmt.Errorf("pods %s have not ended, and may write again what was removed", strings.Join(left, ", "))
	}
	if failed != nil {
		return failed
	}
	return err
}

// runningPods are the release's. Those on nodes that are not ready never end, and are not among them.
func (u *uninstall) runningPods(ctx context.Context) (names []string, err error) {
	nodes, err := u.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	ready := map[string]bool{}
	for i := range nodes.Items {
		ready[nodes.Items[i].Name] = v1alpha1.Ready(&nodes.Items[i])
	}
	ours := labels.Set{"app.kubernetes.io/part-of": "kubeslot", "app.kubernetes.io/instance": u.Release}.String()
	pods, err := u.Kube.CoreV1().Pods(u.Namespace).List(ctx, metav1.ListOptions{LabelSelector: ours})
	if err != nil {
		return nil, fmt.Errorf("list the release's pods: %w", err)
	}
	for _, p := range pods.Items {
		name := p.Labels["app.kubernetes.io/name"]
		ended := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
		if !ended && !strings.HasPrefix(name, "uninstall") && ready[p.Spec.NodeName] {
			names = append(names, p.Name)
		}
	}
	return names, nil
}

// prepared names the ResourceClaims that kubelets have prepared by kubecri: they cannot be unprepared without it, and
// until then a kubelet lets no pod of theirs go.
func (u *uninstall) prepared(ctx context.Context) error {
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWords)
	defer cancel()
	list, err := u.Client.KubeslotV1alpha1().SlotClaims().List(end, metav1.ListOptions{})
	if isGone(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list SlotClaims: %w", err)
	}
	var names []string
	for i := range list.Items {
		if of := list.Items[i].Spec.ResourceClaim; of != nil {
			names = append(names, of.Namespace+"/"+of.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	names = slices.Compact(names)
	const most = 10
	if more := len(names) - most; more > 0 {
		names = append(names[:most], fmt.Sprintf("and %d more", more))
	}
	return fmt.Errorf("pods use ResourceClaims of driver %s: %s. Once such a pod is deleted it stays Terminating, for "+
		"its kubelet asks kubecri to let go: install Kubeslot again, or delete the pod with --force --grace-period=0",
		v1alpha1.DRADriver, strings.Join(names, ", "))
}

// nodes cleans all nodes that had kubecri.
func (u *uninstall) nodes(ctx context.Context) error {
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWords)
	list, err := u.Kube.CoreV1().Nodes().List(end, metav1.ListOptions{})
	cancel()
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	selected, err := u.selected(list.Items)
	if err != nil {
		return err
	}
	errs := make([]error, len(selected))
	// Also when ctx ends: what the API server has of each node goes in any case.
	workqueue.ParallelizeUntil(context.WithoutCancel(ctx), u.Parallel, len(selected), func(i int) {
		errs[i] = u.node(ctx, &selected[i])
	})
	return errors.Join(errs...)
}

// selected are the nodes that had kubecri.
func (u *uninstall) selected(nodes []corev1.Node) ([]corev1.Node, error) {
	affinity := nodeaffinity.GetRequiredNodeAffinity(u.Pod)
	var selected []corev1.Node
	for i := range nodes {
		matches, err := affinity.Match(&nodes[i])
		if err != nil {
			return nil, fmt.Errorf("node affinity of the pod that cleans nodes: %w", err)
		}
		if matches {
			selected = append(selected, nodes[i])
		}
	}
	return selected, nil
}

func (u *uninstall) node(ctx context.Context, n *corev1.Node) error {
	err := errors.New("the node is not ready")
	if v1alpha1.Ready(n) {
		err = u.runPod(ctx, n.Name)
	}
	if err != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), lastWords)
		defer cancel()
		err = fmt.Errorf("%w; its files stay: remove them there with `kubecri cleanup`", err)
	}
	removed, apiErr := u.CleanNode(ctx, n.Name)
	for _, r := range removed {
		u.say("node %s: %s", n.Name, r)
	}
	if apiErr != nil {
		err = errors.Join(err, fmt.Errorf("what the API server has of it stays: %w", apiErr))
	}
	if err != nil {
		return fmt.Errorf("node %s: %w", n.Name, err)
	}
	return nil
}

// configurations deletes those that the chart made as hooks, which helm does not delete:
// see templates/configurations.yaml.
func (u *uninstall) configurations(ctx context.Context) error {
	client := u.Client.AkriV0().Configurations(u.Namespace)
	list, err := client.List(ctx, metav1.ListOptions{})
	if isGone(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list Configurations: %w", err)
	}
	var errs []error
	for _, c := range list.Items {
		if c.Annotations["helm.sh/hook"] == "" || c.Annotations["meta.helm.sh/release-name"] != u.Release || c.Annotations["meta.helm.sh/release-namespace"] != u.Namespace {
			continue
		}
		if err := client.Delete(ctx, c.Name, metav1.DeleteOptions{}); err != nil && !isGone(err) {
			errs = append(errs, fmt.Errorf("delete Configuration %s/%s: %w", c.Namespace, c.Name, err))
			continue
		}
		u.say("Configuration %s/%s of the chart is deleted", c.Namespace, c.Name)
	}
	return errors.Join(errs...)
}

// notReady has the Configurations that stay say that nobody serves them, which nobody else says any more.
func (u *uninstall) notReady(ctx context.Context) error {
	list, err := u.Client.AkriV0().Configurations(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if isGone(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list Configurations: %w", err)
	}
	const reason, message = "NotInstalled", "Kubeslot was uninstalled: no devices are given to pods"
	var errs []error
	for i := range list.Items {
		c := &list.Items[i]
		if !meta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{Type: akriv0.ConditionReady, Status: metav1.ConditionFalse, Reason: reason, ObservedGeneration: c.Generation, Message: message}) {
			continue
		}
		c.Status = akriv0.ConfigurationStatus{ObservedGeneration: c.Generation, Conditions: c.Status.Conditions,
			Problems: []akriv0.ConfigurationProblem{{Reason: reason, Message: message}}}
		if _, err := u.Client.AkriV0().Configurations(c.Namespace).UpdateStatus(ctx, c, metav1.UpdateOptions{}); err != nil && !isGone(err) {
			errs = append(errs, fmt.Errorf("write into the status of Configuration %s/%s that it is not served: %w", c.Namespace, c.Name, err))
		}
	}
	return errors.Join(errs...)
}

// leases deletes those of the leader elections. Those of discovery are their Configurations', and those of nodes
// are deleted by CleanNode.
func (u *uninstall) leases(ctx context.Context) error {
	var errs []error
	for _, l := range []types.NamespacedName{
		{Namespace: u.Namespace, Name: "kubeslot-scheduler"}, {Namespace: "kube-system", Name: "kubeslot-controller"},
	} {
		err := u.Kube.CoordinationV1().Leases(l.Namespace).Delete(ctx, l.Name, metav1.DeleteOptions{})
		if err != nil && !isGone(err) {
			errs = append(errs, fmt.Errorf("delete Lease %s: %w", l, err))
		}
	}
	return errors.Join(errs...)
}

// dra deletes the ResourceSlices and DeviceClasses of the controller.
func (u *uninstall) dra(ctx context.Context) error {
	resources := u.Kube.ResourceV1()
	ofDriver := metav1.ListOptions{FieldSelector: resourceapi.ResourceSliceSelectorDriver + "=" + v1alpha1.DRADriver}
	err := resources.ResourceSlices().DeleteCollection(ctx, metav1.DeleteOptions{}, ofDriver)
	if isGone(err) {
		return nil
	}
	var errs []error
	if err != nil {
		errs = append(errs, fmt.Errorf("delete the ResourceSlices of driver %s: %w", v1alpha1.DRADriver, err))
	}
	classes, err := resources.DeviceClasses().List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.ConfigurationLabel})
	if err != nil {
		return errors.Join(append(errs, fmt.Errorf("list the DeviceClasses of Configurations: %w", err))...)
	}
	for _, c := range classes.Items {
		if c.Name != v1alpha1.DeviceClassName(c.Labels[v1alpha1.ConfigurationLabel]) {
			continue
		}
		if err := resources.DeviceClasses().Delete(ctx, c.Name, metav1.DeleteOptions{}); err != nil && !isGone(err) {
			errs = append(errs, fmt.Errorf("delete DeviceClass %s: %w", c.Name, err))
		}
	}
	return errors.Join(errs...)
}

// isGone is true also when the whole kind is gone.
func isGone(err error) bool { return apierrors.IsNotFound(err) || meta.IsNoMatchError(err) }
