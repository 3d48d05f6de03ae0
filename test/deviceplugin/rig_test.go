package deviceplugin

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeslot/kubeslot/test/await"
	"github.com/kubeslot/kubeslot/test/cluster"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/slot"
)

// patience is how long anything may take on a slow machine. The kubelet reports its
// amounts every 10 s.
const patience = 4 * time.Minute

// rig is a test's namespace.
type rig struct {
	*testing.T
	ctx context.Context
	ns  string
	// configurations are the names of those that the test has made.
	configurations []string
}

func newRig(t *testing.T) *rig {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	t.Cleanup(cancel)
	r := &rig{T: t, ctx: ctx, ns: strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(t.Name(), "Test"), "/", "-"))}
	_, err := kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: r.ns}}, metav1.CreateOptions{})
	r.check(err)
	t.Cleanup(r.cleanUp)
	r.await("the namespace's default service account", func() (bool, string) {
		_, err := kube.CoreV1().ServiceAccounts(r.ns).Get(ctx, "default", metav1.GetOptions{})
		return err == nil, fmt.Sprint(err)
	})
	return r
}

// cleanUp deletes what the test has made and waits until no claim is left: none leaks.
func (r *rig) cleanUp() {
	r.ctx = context.Background()
	if r.Failed() {
		r.dump()
	}
	now := int64(0)
	r.check(kube.AppsV1().Deployments(r.ns).DeleteCollection(r.ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	background := metav1.DeletePropagationBackground
	r.check(kube.BatchV1().Jobs(r.ns).DeleteCollection(r.ctx, metav1.DeleteOptions{PropagationPolicy: &background}, metav1.ListOptions{}))
	r.await("the namespace's pods to be gone", func() (bool, string) {
		r.check(kube.CoreV1().Pods(r.ns).DeleteCollection(r.ctx, metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{}))
		pods, err := kube.CoreV1().Pods(r.ns).List(r.ctx, metav1.ListOptions{})
		r.check(err)
		return len(pods.Items) == 0, fmt.Sprint(len(pods.Items), " are left")
	})
	r.await("all slots to be free", func() (bool, string) {
		usage := r.usage()
		return len(usage) == 0, fmt.Sprint(usage)
	})
	r.check(akri.AkriV0().Configurations(r.ns).DeleteCollection(r.ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	r.check(kube.CoreV1().Namespaces().Delete(r.ctx, r.ns, metav1.DeleteOptions{}))
}

func (r *rig) dump() {
	for _, args := range [][]string{
		{"get", "pods,configurations,instances", "-n", r.ns, "-o", "wide"},
		{"get", "events", "-n", r.ns, "--sort-by=.metadata.creationTimestamp"},
		{"get", "slotclaims", "-o", "yaml"},
		{"get", "nodes", "-o", `jsonpath={range .items[*]}{.metadata.name} {.status.capacity} {.status.allocatable}{"\n"}{end}`},
	} {
		out, err := shared.Kubectl(r.ctx, args...)
		r.Logf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func (r *rig) check(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// await waits until ok, or fails with what was awaited and what was last seen.
func (r *rig) await(what string, ok func() (bool, string)) {
	r.Helper()
	await.Within(r.T, patience, what, ok)
}

// configuration makes a Configuration of a name that no other test has, for a kubelet
// shows a resource that is gone for minutes. Its devices are seen by both nodes. It returns its
// Instances, by name.
func (r *rig) configuration(name string, capacity int32, change func(*akriv0.ConfigurationSpec), devices ...string) []string {
	r.Helper()
	c := &akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: akriv0.ConfigurationSpec{Capacity: capacity,
		DiscoveryHandler: akriv0.DiscoveryHandlerInfo{Name: "debugEcho", DiscoveryDetails: "descriptions: [" + strings.Join(devices, ", ") + "]"}}}
	if change != nil {
		change(&c.Spec)
	}
	_, err := akri.AkriV0().Configurations(r.ns).Create(r.ctx, c, metav1.CreateOptions{})
	r.check(err)
	r.configurations = append(r.configurations, name)
	var instances []string
	for _, d := range devices {
		instances = append(instances, slot.InstanceName(name, slot.InstanceHash(d, true, "", slot.ShortHash)))
	}
	slices.Sort(instances)
	return instances
}

// amounts are what node.status shows of a resource, as capacity/allocatable; "" for none.
func (r *rig) amounts(node, name string) string {
	r.Helper()
	n, err := kube.CoreV1().Nodes().Get(r.ctx, node, metav1.GetOptions{})
	r.check(err)
	capacity, ok := n.Status.Capacity[corev1.ResourceName("akri.sh/"+name)]
	allocatable := n.Status.Allocatable[corev1.ResourceName("akri.sh/"+name)]
	if !ok {
		return ""
	}
	return fmt.Sprintf("%d/%d", capacity.Value(), allocatable.Value())
}

// awaitAmounts waits until a node shows the amounts of resources.
func (r *rig) awaitAmounts(node string, want map[string]string) {
	r.Helper()
	r.await(fmt.Sprintf("node %s to have %v", node, want), func() (bool, string) {
		got := map[string]string{}
		for name := range want {
			got[name] = r.amounts(node, name)
		}
		return maps.Equal(got, want), fmt.Sprint(got)
	})
}

// usage is who has which slot of the test's Configurations, as deviceUsage shows it.
func (r *rig) usage() map[string]string {
	r.Helper()
	list, err := akri.KubeslotV1alpha1().SlotClaims().List(r.ctx, metav1.ListOptions{})
	r.check(err)
	usage := map[string]string{}
	for _, c := range list.Items {
		name, err := c.Slot()
		r.check(err)
		if of, _ := slot.SplitInstance(name.Instance); !slices.Contains(r.configurations, of) {
			continue // another test's
		}
		usage[c.Name] = c.Spec.Usage().String()
	}
	return usage
}

// newPod describes a pod of containers, each "name=resource:n,…", "init:name=…" or
// "sidecar:name=…". command is that of all containers but of init ones, which end at once.
func newPod(name, node string, containers ...string) *corev1.Pod {
	grace, no, always := int64(1), false, corev1.ContainerRestartPolicyAlways
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{TerminationGracePeriodSeconds: &grace, AutomountServiceAccountToken: &no}}
	if node != "" {
		p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	}
	for _, text := range containers {
		text, init := strings.CutPrefix(text, "init:")
		text, sidecar := strings.CutPrefix(text, "sidecar:")
		named, amounts, _ := strings.Cut(text, "=")
		c := corev1.Container{Name: named, Image: cluster.AppImage, ImagePullPolicy: corev1.PullNever, Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{}}}
		for amount := range strings.SplitSeq(amounts, ",") {
			if name, n, ok := strings.Cut(amount, ":"); ok {
				c.Resources.Limits[corev1.ResourceName("akri.sh/"+name)] = resource.MustParse(n)
			}
		}
		switch {
		case init:
			c.Args = []string{"exit", "0"}
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		case sidecar:
			c.RestartPolicy = &always
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		default:
			p.Spec.Containers = append(p.Spec.Containers, c)
		}
	}
	return p
}

func (r *rig) create(p *corev1.Pod) {
	r.Helper()
	_, err := kube.CoreV1().Pods(r.ns).Create(r.ctx, p, metav1.CreateOptions{})
	r.check(err)
}

func (r *rig) pod(name string) *corev1.Pod {
	r.Helper()
	p, err := kube.CoreV1().Pods(r.ns).Get(r.ctx, name, metav1.GetOptions{})
	r.check(err)
	return p
}

// run creates the pod and waits until all of its containers run.
func (r *rig) run(p *corev1.Pod) {
	r.Helper()
	r.create(p)
	r.awaitRunning(p.Name)
}

func (r *rig) awaitRunning(name string) {
	r.Helper()
	r.await("pod "+name+" to run", func() (bool, string) {
		p := r.pod(name)
		if p.Status.Phase == corev1.PodFailed {
			r.Fatalf("pod %s has failed: %s: %s", name, p.Status.Reason, p.Status.Message)
		}
		ready := len(p.Status.ContainerStatuses) > 0
		for _, s := range p.Status.ContainerStatuses {
			ready = ready && s.State.Running != nil
		}
		return ready, fmt.Sprint(p.Status.Phase, p.Status.Conditions, p.Status.ContainerStatuses)
	})
}

// awaitPending waits until the scheduler has refused the pod with the message.
func (r *rig) awaitPending(name, message string) {
	r.Helper()
	r.await(fmt.Sprintf("pod %s to be refused with %q", name, message), func() (bool, string) {
		for _, c := range r.pod(name).Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
				return strings.Contains(c.Message, message), c.Message
			}
		}
		return false, "no PodScheduled condition"
	})
}

// remove deletes the pod, and returns when its slots are free.
func (r *rig) remove(name string) {
	r.Helper()
	held := r.slots(name)
	r.check(kube.CoreV1().Pods(r.ns).Delete(r.ctx, name, metav1.DeleteOptions{}))
	r.await("pod "+name+" to be gone", func() (bool, string) {
		_, err := kube.CoreV1().Pods(r.ns).Get(r.ctx, name, metav1.GetOptions{})
		return err != nil, "it is still there"
	})
	r.await("slots of pod "+name+" to be free", func() (bool, string) {
		usage := r.usage()
		for _, s := range held {
			if usage[s] != "" {
				return false, fmt.Sprint(usage)
			}
		}
		return true, ""
	})
}

// containers asks the node's runtime for a pod's containers.
func (r *rig) containers(name string) []*runtimeapi.Container {
	r.Helper()
	p := r.pod(name)
	conn, err := grpc.NewClient("unix://"+shared.CRISocket(p.Spec.NodeName), grpc.WithTransportCredentials(insecure.NewCredentials()))
	r.check(err)
	defer conn.Close()
	list, err := runtimeapi.NewRuntimeServiceClient(conn).ListContainers(r.ctx, &runtimeapi.ListContainersRequest{
		Filter: &runtimeapi.ContainerFilter{LabelSelector: map[string]string{"io.kubernetes.pod.uid": string(p.UID)}}})
	r.check(err)
	return list.Containers
}

// runs asks the node's runtime whether a container of the pod runs.
func (r *rig) runs(node, pod string) bool {
	r.Helper()
	conn, err := grpc.NewClient("unix://"+shared.CRISocket(node), grpc.WithTransportCredentials(insecure.NewCredentials()))
	r.check(err)
	defer conn.Close()
	list, err := runtimeapi.NewRuntimeServiceClient(conn).ListContainers(r.ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
		State:         &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
		LabelSelector: map[string]string{"io.kubernetes.pod.name": pod, "io.kubernetes.pod.namespace": r.ns}}})
	r.check(err)
	return len(list.Containers) > 0
}

// slots are those of the pod's containers, by their annotations, sorted.
func (r *rig) slots(name string) []string {
	r.Helper()
	var all []string
	for _, c := range r.containers(name) {
		for key, value := range c.Annotations {
			if s, _, ok, err := slot.ParseAnnotation(key, value); ok && err == nil && !slices.Contains(all, s.String()) {
				all = append(all, s.String())
			}
		}
	}
	slices.Sort(all)
	return all
}

// slotsOf are those of one container.
func (r *rig) slotsOf(pod, container string) []string {
	r.Helper()
	var all []string
	for _, c := range r.containers(pod) {
		if c.Labels["io.kubernetes.container.name"] != container {
			continue
		}
		for key, value := range c.Annotations {
			if s, _, ok, err := slot.ParseAnnotation(key, value); ok && err == nil {
				all = append(all, s.String())
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// env is the environment inside a container.
func (r *rig) env(pod, container string) map[string]string {
	r.Helper()
	out, err := shared.Kubectl(r.ctx, "exec", "-n", r.ns, pod, "-c", container, "--", "/app", "env")
	r.check(err)
	env := map[string]string{}
	for line := range strings.Lines(strings.TrimSpace(out)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		env[name] = value
	}
	return env
}

// devices are those that a container's environment lists for the resource.
func (r *rig) devices(pod, container, name string) []string {
	r.Helper()
	var listed []struct{ Instance, Slot string }
	env := r.env(pod, container)
	text := env["AKRI_DEVICES_"+strings.ToUpper(strings.ReplaceAll(name, "-", "_"))]
	if err := json.Unmarshal([]byte(text), &listed); err != nil {
		r.Fatalf("the devices of %s/%s: %v: %v", pod, container, err, env)
	}
	var slots []string
	for _, d := range listed {
		slots = append(slots, d.Slot)
	}
	slices.Sort(slots)
	return slots
}
