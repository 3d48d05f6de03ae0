package monitoring

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeslot/kubeslot/test/await"
	"github.com/kubeslot/kubeslot/test/cluster"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/client/clientset/versioned"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

const (
	nodeA, nodeB = "node-a", "node-b"
	namespace    = "default"
)

// rig is a cluster of the test's own, and its Prometheus.
type rig struct {
	*testing.T
	ctx context.Context
	*cluster.Cluster
	kube       kubernetes.Interface
	client     versioned.Interface
	prometheus *prometheus
}

func up(t *testing.T) *rig {
	t.Helper()
	bin := built(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	t.Cleanup(cancel)
	cfg := cluster.Config{Name: "monitoring", Nodes: []string{nodeA, nodeB}, SchedulerArgs: []string{"--v=2"}}
	if err := cluster.Down(ctx, cfg); err != nil {
		t.Fatal(err)
	}
	c, err := cluster.Up(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if os.Getenv("KEEP") == "" {
			if err := c.Down(context.Background()); err != nil {
				t.Error(err)
			}
		}
	})
	r := &rig{T: t, ctx: ctx, Cluster: c}
	config, err := c.RESTConfig()
	r.check(err)
	config.QPS = -1
	r.kube, err = kubernetes.NewForConfig(config)
	r.check(err)
	r.client, err = versioned.NewForConfig(config)
	r.check(err)
	await.That(t, "the default service account", func() (bool, string) {
		_, err := r.kube.CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{})
		return err == nil, fmt.Sprint(err)
	})
	r.prometheus = startPrometheus(t, bin, c)
	return r
}

func (r *rig) check(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// plugin builds a plugin for the cluster's programs.
func (r *rig) plugin(source, file string) {
	r.Helper()
	cmd := exec.CommandContext(r.ctx, "go", "run", "./plugins/builder", "-binaries", r.BinDir(), "-o", file, source)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		r.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
}

// restart has a component start anew, and waits until it serves.
func (r *rig) restart(component, node string) {
	r.Helper()
	r.check(r.Restart(component, node))
	r.check(r.AwaitServing(r.ctx, component, node))
}

func (r *rig) node(name string) cluster.Node {
	for _, n := range r.Nodes() {
		if n.Name == name {
			return n
		}
	}
	r.Fatalf("there is no node %s", name)
	return cluster.Node{}
}

// configure makes a Configuration of the handler.
func (r *rig) configure(namespace, name, handler, details string, capacity int32, changes ...func(*akriv0.ConfigurationSpec)) {
	r.Helper()
	c := &akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: akriv0.ConfigurationSpec{Capacity: capacity,
		DiscoveryHandler: akriv0.DiscoveryHandlerInfo{Name: handler, DiscoveryDetails: details}}}
	for _, change := range changes {
		change(&c.Spec)
	}
	_, err := r.client.AkriV0().Configurations(namespace).Create(r.ctx, c, metav1.CreateOptions{})
	r.check(err)
}

// slots waits until all nodes reach the Configuration's one device and advertise it, and
// returns the names of its slots.
func (r *rig) slots(name string, capacity int) []string {
	r.Helper()
	var names []string
	await.That(r.T, "the device of "+name+" on both nodes", func() (bool, string) {
		list, err := r.client.AkriV0().Instances(namespace).List(r.ctx, metav1.ListOptions{})
		r.check(err)
		names = nil
		for _, in := range list.Items {
			if in.Spec.ConfigurationName == name && len(in.Spec.Nodes) == 2 {
				for i := range capacity {
					names = append(names, slot.Name{Instance: in.Name, Index: i}.String())
				}
			}
		}
		if len(names) == 0 {
			return false, fmt.Sprintf("%d Instances", len(list.Items))
		}
		for _, node := range []string{nodeA, nodeB} {
			n, err := r.kube.CoreV1().Nodes().Get(r.ctx, node, metav1.GetOptions{})
			r.check(err)
			if q := n.Status.Allocatable[corev1.ResourceName("akri.sh/"+name)]; q.Value() != int64(capacity) {
				return false, fmt.Sprintf("%s advertises %s", node, q.String())
			}
		}
		return true, ""
	})
	return names
}

func pod(name, node, configuration string, changes ...func(*corev1.Pod)) *corev1.Pod {
	grace, no := int64(0), false
	amount := corev1.ResourceList{corev1.ResourceName("akri.sh/" + configuration): resource.MustParse("1")}
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{TerminationGracePeriodSeconds: &grace, AutomountServiceAccountToken: &no,
		Containers: []corev1.Container{{Name: "main", Image: cluster.AppImage, ImagePullPolicy: corev1.PullNever,
			Resources: corev1.ResourceRequirements{Requests: amount, Limits: amount}}}}}
	if node != "" {
		p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	}
	for _, change := range changes {
		change(p)
	}
	return p
}

func (r *rig) create(p *corev1.Pod) *corev1.Pod {
	r.Helper()
	p, err := r.kube.CoreV1().Pods(namespace).Create(r.ctx, p, metav1.CreateOptions{})
	r.check(err)
	return p
}

func (r *rig) awaitRunning(name string) *corev1.Pod {
	r.Helper()
	var p *corev1.Pod
	await.That(r.T, "pod "+name+" to run", func() (bool, string) {
		var err error
		p, err = r.kube.CoreV1().Pods(namespace).Get(r.ctx, name, metav1.GetOptions{})
		r.check(err)
		return p.Status.Phase == corev1.PodRunning, fmt.Sprint(p.Status.Phase, p.Status.Conditions, p.Status.ContainerStatuses)
	})
	return p
}

func (r *rig) delete(name string) {
	r.Helper()
	r.check(r.kube.CoreV1().Pods(namespace).Delete(r.ctx, name, metav1.DeleteOptions{}))
	await.That(r.T, "pod "+name+" to be gone", func() (bool, string) {
		_, err := r.kube.CoreV1().Pods(namespace).Get(r.ctx, name, metav1.GetOptions{})
		return err != nil, "it is there"
	})
}

// claim makes a SlotClaim that no kubecri would make.
func (r *rig) claim(name, node string) {
	r.Helper()
	n, err := r.kube.CoreV1().Nodes().Get(r.ctx, node, metav1.GetOptions{})
	r.check(err)
	parsed, err := slot.Parse(name)
	r.check(err)
	spec := v1alpha1.SlotClaimSpec{NodeName: node, Level: v1alpha1.ConfigurationLevel, Holder: "nobody",
		Pod: &v1alpha1.PodReference{Namespace: "default", Name: "nobody", UID: "nobody"}}
	claim := v1alpha1.NewSlotClaim(parsed, spec, v1alpha1.NodeOwner(n.Name, n.UID))
	_, err = r.client.KubeslotV1alpha1().SlotClaims().Create(r.ctx, claim, metav1.CreateOptions{})
	r.check(err)
}

// nodeOff has a node that nobody ever sees Ready hold the slot for a pod that is gone.
func (r *rig) nodeOff(name string) {
	r.Helper()
	parsed, err := slot.Parse(name)
	r.check(err)
	n, err := r.kube.CoreV1().Nodes().Create(r.ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "off"}, Spec: corev1.NodeSpec{Unschedulable: true}}, metav1.CreateOptions{})
	r.check(err)
	owner := v1alpha1.NodeOwner(n.Name, n.UID)
	reports := &v1alpha1.DeviceSlice{ObjectMeta: metav1.ObjectMeta{Name: "off-0", OwnerReferences: []metav1.OwnerReference{owner}}, Spec: v1alpha1.DeviceSliceSpec{NodeName: "off"}}
	all, err := r.client.KubeslotV1alpha1().DeviceSlices().List(r.ctx, metav1.ListOptions{})
	r.check(err)
	for _, s := range all.Items {
		for _, d := range s.Spec.Devices {
			if s.Spec.NodeName == nodeA && d.Instance() == parsed.Instance {
				reports.Spec.Devices = append(reports.Spec.Devices, d)
			}
		}
	}
	_, err = r.client.KubeslotV1alpha1().DeviceSlices().Create(r.ctx, reports, metav1.CreateOptions{})
	r.check(err)
	await.That(r.T, "the controller to know that the node reaches the device", func() (bool, string) {
		in, err := r.client.AkriV0().Instances(namespace).Get(r.ctx, parsed.Instance, metav1.GetOptions{})
		r.check(err)
		return slices.Contains(in.Spec.Nodes, "off"), fmt.Sprint(in.Spec.Nodes)
	})
	_, err = r.client.KubeslotV1alpha1().SlotClaims().Create(r.ctx, v1alpha1.NewSlotClaim(parsed, v1alpha1.SlotClaimSpec{NodeName: "off", Container: "main",
		Level: v1alpha1.ConfigurationLevel, Holder: "gone", Pod: &v1alpha1.PodReference{Namespace: namespace, Name: "gone", UID: "gone"}}, owner), metav1.CreateOptions{})
	r.check(err)
	r.prometheus.awaitAlert(r.T, "KubeslotSlotsUnreachable", nil)
	r.check(r.kube.CoreV1().Nodes().Delete(r.ctx, "off", metav1.DeleteOptions{})) // which releases it
}

// claimBeyond has node-a claim slots of the slot's device beyond its capacity, which is 5: ten at
// once, since the alert is for more than three, and ten more when the controller has deleted
// these, until it fires. It returns one of them, which is deleted.
func (r *rig) claimBeyond(of string) string {
	r.Helper()
	const name = "KubeslotClaimsNeverCounted"
	beyond, err := slot.Parse(of)
	r.check(err)
	fires := func() bool {
		return slices.ContainsFunc(r.prometheus.firing(r.T), func(a alert) bool { return a.Labels["alertname"] == name })
	}
	for end := time.Now().Add(await.Patience); !fires() && time.Now().Before(end); {
		for beyond.Index = 5; beyond.Index < 15; beyond.Index++ {
			r.claim(beyond.String(), nodeA)
		}
		await.That(r.T, "the controller to delete the claims beyond the capacity", func() (bool, string) {
			list, err := r.client.KubeslotV1alpha1().SlotClaims().List(r.ctx, metav1.ListOptions{})
			r.check(err)
			left := slices.DeleteFunc(list.Items, func(c v1alpha1.SlotClaim) bool {
				s, err := c.Slot()
				return err != nil || s.Index < 5
			})
			return len(left) == 0, fmt.Sprintf("%d are left", len(left))
		})
	}
	r.prometheus.awaitAlert(r.T, name, nil)
	beyond.Index = 9
	return beyond.String()
}

// createPast has the node's runtime run the pod's container once more, past kubecri, until
// kubecri has stopped it.
func (r *rig) createPast(pod, node string) {
	r.Helper()
	r.check(r.Kill(cluster.Kubelet, node, syscall.SIGSTOP)) // which would see to it, too
	defer func() { r.check(r.Kill(cluster.Kubelet, node, syscall.SIGCONT)) }()
	conn, err := grpc.NewClient("unix://"+r.node(node).ContainerdSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	r.check(err)
	defer conn.Close()
	cri := runtimeapi.NewRuntimeServiceClient(conn)
	list, err := cri.ListContainers(r.ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
		State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING}, LabelSelector: map[string]string{"io.kubernetes.pod.name": pod}}})
	r.check(err)
	if len(list.Containers) != 1 {
		r.Fatalf("pod %s has %d containers that run, want 1", pod, len(list.Containers))
	}
	c := list.Containers[0]
	again, err := cri.CreateContainer(r.ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: c.PodSandboxId,
		Config:        &runtimeapi.ContainerConfig{Metadata: &runtimeapi.ContainerMetadata{Name: c.Metadata.Name, Attempt: 99}, Image: c.Image, Labels: c.Labels, Linux: &runtimeapi.LinuxContainerConfig{}},
		SandboxConfig: &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: pod, Namespace: namespace}}})
	r.check(err)
	_, err = cri.StartContainer(r.ctx, &runtimeapi.StartContainerRequest{ContainerId: again.ContainerId})
	r.check(err)
	await.That(r.T, "kubecri to stop a container that lacks its devices", func() (bool, string) {
		s, err := cri.ContainerStatus(r.ctx, &runtimeapi.ContainerStatusRequest{ContainerId: again.ContainerId})
		r.check(err)
		return s.Status.State == runtimeapi.ContainerState_CONTAINER_EXITED, s.Status.State.String()
	})
	_, err = cri.RemoveContainer(r.ctx, &runtimeapi.RemoveContainerRequest{ContainerId: again.ContainerId})
	r.check(err)
}

// without takes rights from kubecri, all verbs of the resource but those that it reads with,
// until back is called.
func (r *rig) without(resources ...string) (back func()) {
	r.Helper()
	roles := r.kube.RbacV1().ClusterRoles()
	before, err := roles.Get(r.ctx, "kubeslot:kubecri", metav1.GetOptions{})
	r.check(err)
	role := before.DeepCopy()
	for i := range role.Rules {
		for _, resource := range resources {
			if len(role.Rules[i].Resources) == 1 && role.Rules[i].Resources[0] == resource {
				role.Rules[i].Verbs = []string{"get", "list", "watch"}
			}
		}
	}
	_, err = roles.Update(r.ctx, role, metav1.UpdateOptions{})
	r.check(err)
	await.That(r.T, "the API server to know of the missing rights", func() (bool, string) {
		review, err := r.kube.AuthorizationV1().SubjectAccessReviews().Create(r.ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "system:kubecri:" + nodeB, Groups: []string{"system:kubecris"},
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "delete", Group: v1alpha1.SchemeGroupVersion.Group, Resource: "slotclaims"}}}, metav1.CreateOptions{})
		r.check(err)
		return !review.Status.Allowed, review.Status.Reason
	})
	return func() {
		r.Helper()
		now, err := roles.Get(r.ctx, role.Name, metav1.GetOptions{})
		r.check(err)
		now.Rules = append([]rbacv1.PolicyRule(nil), before.Rules...)
		_, err = roles.Update(r.ctx, now, metav1.UpdateOptions{})
		r.check(err)
	}
}

// logs waits until a component's log has a line with all the parts.
func (r *rig) logs(component, node string, parts ...string) {
	r.Helper()
	await.That(r.T, fmt.Sprintf("%s %s to log %q", component, node, parts), func() (bool, string) {
		text, err := os.ReadFile(r.LogPath(component, node))
		r.check(err)
	lines:
		for line := range strings.Lines(string(text)) {
			for _, part := range parts {
				if !strings.Contains(line, part) {
					continue lines
				}
			}
			return true, ""
		}
		return false, "it does not"
	})
}

func (r *rig) kill(component, node string) {
	r.Helper()
	r.check(r.Kill(component, node, syscall.SIGKILL))
}

// write replaces a file at once.
func (r *rig) write(path, text string) {
	r.Helper()
	r.check(os.WriteFile(path+".new", []byte(text), 0o600))
	r.check(os.Rename(path+".new", path))
}

func (r *rig) pluginFile(node, name string) string {
	return filepath.Join(r.node(node).DevicePluginDir, name)
}
