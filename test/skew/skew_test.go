// Package skew tries Kubeslot, whose programs are of one minor version of Kubernetes, with
// kubelets and API servers of others: the table of docs/versions.md. It builds those, which
// takes some ten minutes a version, so it runs on demand: make test-skew.
package skew

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/kubernetes"

	"github.com/kubeslot/kubeslot/test/await"
	"github.com/kubeslot/kubeslot/test/cluster"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/client/clientset/versioned"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/version"
)

// name is the cluster's, so that two runs can be beside each other.
var name = cmp.Or(os.Getenv("CLUSTER"), "skew")

// versions are those of the environment variable, by default all of them.
func versions(t *testing.T, variable string, all ...string) []string {
	t.Helper()
	if os.Getenv("KUBESLOT_SKEW") == "" {
		t.Skip("builds other versions of Kubernetes: run `make test-skew` as root")
	}
	if set := os.Getenv(variable); set != "" {
		return strings.Split(set, ",")
	}
	return all
}

// rig is a cluster of several versions.
type rig struct {
	*testing.T
	*cluster.Cluster
	ctx    context.Context
	kube   kubernetes.Interface
	client versioned.Interface
	// logs are of components on nodes, for a failure.
	logs [][2]string
}

// details have a device node in each camera, of which a runtime that leaves out what it is to give says nothing.
const details = `
descriptions: [gate, yard]
deviceSpecs: [{containerPath: /dev/cam0, hostPath: /dev/zero, permissions: r}]
`

// up brings a cluster up, with two cameras that all of its nodes reach.
func up(t *testing.T, cfg cluster.Config) *rig {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour) // building is the most of it
	t.Cleanup(cancel)
	cfg.Name = name
	r := &rig{T: t, ctx: ctx, logs: [][2]string{{cluster.Scheduler, ""}, {cluster.Controller, ""}}}
	r.check(cluster.Down(ctx, cfg))
	var err error
	r.Cluster, err = cluster.Up(ctx, cfg)
	r.check(err)
	t.Cleanup(func() {
		if t.Failed() {
			r.dump()
		}
		if err := r.Down(context.Background()); err != nil {
			t.Error(err)
		}
	})
	config, err := r.RESTConfig()
	r.check(err)
	r.kube, err = kubernetes.NewForConfig(config)
	r.check(err)
	r.client, err = versioned.NewForConfig(config)
	r.check(err)
	_, err = r.client.AkriV0().Configurations("default").Create(ctx, &akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Name: "cameras"},
		Spec: akriv0.ConfigurationSpec{Capacity: 8,
			DiscoveryHandler: akriv0.DiscoveryHandlerInfo{Name: "debugEcho",
				DiscoveryDetails: details}}}, metav1.CreateOptions{})
	r.check(err)
	return r
}

func (r *rig) check(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// in returns the rig for a part of the test.
func (r *rig) in(t *testing.T) *rig {
	part := *r
	part.T = t
	return &part
}

func (r *rig) await(what string, ok func() (bool, string)) {
	r.Helper()
	await.That(r.T, what, ok)
}

func (r *rig) dump() {
	for _, args := range [][]string{{"get", "pods,nodes", "-A", "-o", "wide"}, {"get", "events", "-A"}, {"get", "deviceslices,slotclaims"}} {
		out, err := r.Kubectl(context.Background(), args...)
		r.Logf("kubectl %s\n%s%v", strings.Join(args, " "), out, errors.Join(err))
	}
	for _, of := range r.logs {
		log, _ := os.ReadFile(r.LogPath(of[0], of[1]))
		lines := strings.Split(string(log), "\n")
		r.Logf("the end of %s's log:\n%s", of[0], strings.Join(lines[max(0, len(lines)-30):], "\n"))
	}
}

// pod is what a user's pod lives through on a node: it gets a camera, goes on while the
// kubelet and kubecri restart, and gives its slot back.
func (r *rig) pod(node, kubelet string) {
	r.Helper()
	n, err := r.kube.CoreV1().Nodes().Get(r.ctx, node, metav1.GetOptions{})
	r.check(err)
	if got := n.Status.NodeInfo.KubeletVersion; !strings.HasPrefix(got, "v"+kubelet+".") {
		r.Fatalf("node %s has kubelet %s, want %s", node, got, kubelet)
	}
	name, pods := "viewer-"+node, r.kube.CoreV1().Pods("default")
	_, err = pods.Create(r.ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
		NodeSelector: map[string]string{corev1.LabelHostname: node}, TerminationGracePeriodSeconds: new(int64),
		Containers: []corev1.Container{{Name: "main", Image: cluster.AppImage, ImagePullPolicy: corev1.PullNever,
			Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"akri.sh/cameras": resource.MustParse("2")}}}},
	}}, metav1.CreateOptions{})
	r.check(err)
	running := func() string { return r.awaitRunning(name) }
	started := running()
	if env, err := r.Kubectl(r.ctx, "exec", name, "--", "/app", "env"); err != nil || strings.Count(env, "DEBUG_ECHO_DESCRIPTION_") != 2 {
		r.Errorf("the container has not both cameras: %v\n%s", err, env)
	}
	read, err := r.Kubectl(r.ctx, "exec", name, "--", "/app", "read", "/dev/cam0", "4")
	if err != nil || strings.TrimSpace(read) != "00000000" {
		r.Errorf("the container does not read its device node: %v\n%s", err, read)
	}
	r.awaitClaims(node, 2)

	r.check(r.Kill(cluster.Kubecri, node, syscall.SIGTERM))
	r.await("kubecri to have ended", func() (bool, string) {
		pid, err := r.PID(cluster.Kubecri, node)
		return err != nil, fmt.Sprint(pid)
	})
	r.check(r.Start(cluster.Kubecri, node))
	r.check(r.AwaitServing(r.ctx, cluster.Kubecri, node)) // without which a kubelet ends
	r.check(r.Restart(cluster.Kubelet, node))
	restarted := metav1.Now()
	r.check(r.AwaitServing(r.ctx, cluster.Kubelet, node))
	r.await("node "+node+" to be Ready again", func() (bool, string) {
		n, err := r.kube.CoreV1().Nodes().Get(r.ctx, node, metav1.GetOptions{})
		r.check(err)
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady {
				return c.Status == corev1.ConditionTrue && !c.LastHeartbeatTime.Time.Before(restarted.Truncate(time.Second)), c.Message
			}
		}
		return false, "no condition"
	})
	if now := running(); now != started {
		r.Errorf("the container was %s, and is %s since kubelet and kubecri restarted", started, now)
	}
	r.awaitClaims(node, 2)
	r.check(pods.Delete(r.ctx, name, metav1.DeleteOptions{}))
	r.awaitClaims(node, 0)
	r.await("the pod to be gone", func() (bool, string) {
		p, err := pods.Get(r.ctx, name, metav1.GetOptions{})
		return err != nil, fmt.Sprint(p.Status)
	})
}

// awaitRunning returns the id of the pod's container.
func (r *rig) awaitRunning(name string) (id string) {
	r.Helper()
	r.await("pod "+name+" to run", func() (bool, string) {
		p, err := r.kube.CoreV1().Pods("default").Get(r.ctx, name, metav1.GetOptions{})
		r.check(err)
		if s := p.Status.ContainerStatuses; len(s) == 1 && s[0].State.Running != nil {
			id = s[0].ContainerID
			return true, ""
		}
		return false, fmt.Sprintf("%s %v %v", p.Status.Phase, p.Status.Conditions, p.Status.ContainerStatuses)
	})
	return id
}

func (r *rig) awaitClaims(node string, want int) {
	r.Helper()
	r.await(fmt.Sprintf("%d SlotClaims of %s", want, node), func() (bool, string) {
		list, err := r.client.KubeslotV1alpha1().SlotClaims().List(r.ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
		r.check(err)
		return len(list.Items) == want, fmt.Sprint(len(list.Items))
	})
}

// advertised waits until the node has cameras to give.
func (r *rig) advertised(node string) {
	r.Helper()
	r.await("node "+node+" to have cameras", func() (bool, string) {
		n, err := r.kube.CoreV1().Nodes().Get(r.ctx, node, metav1.GetOptions{})
		r.check(err)
		q := n.Status.Allocatable["akri.sh/cameras"]
		return q.Value() >= 2, q.String()
	})
}

func nodeOf(version string) string { return "kubelet-" + strings.ReplaceAll(version, ".", "-") }

// TestKubelets has kubelets of all versions under one API server, in each of kubecri's modes.
func TestKubelets(t *testing.T) {
	kubelets := map[string]string{}
	for _, version := range versions(t, "KUBELETS", append(version.OlderKubernetes(), cluster.Pinned)...) {
		kubelets[nodeOf(version)] = version
	}
	nodes := slices.Sorted(maps.Keys(kubelets))
	inEachMode(t, nodes, cluster.Versions{Kubelets: kubelets}, func(r *rig, node string) { r.pod(node, kubelets[node]) })
}

// TestContainerds has containerd of all versions, in each of kubecri's modes.
func TestContainerds(t *testing.T) {
	containerds := map[string]string{}
	for _, version := range versions(t, "CONTAINERDS", cluster.OlderContainerds...) {
		containerds["containerd-"+strings.ReplaceAll(version, ".", "-")] = version
	}
	inEachMode(t, slices.Sorted(maps.Keys(containerds)), cluster.Versions{Containerds: containerds}, func(r *rig, node string) {
		n, err := r.kube.CoreV1().Nodes().Get(r.ctx, node, metav1.GetOptions{})
		r.check(err)
		want := "containerd://" + containerds[node] + "."
		if got := n.Status.NodeInfo.ContainerRuntimeVersion; !strings.HasPrefix(got, want) {
			r.Fatalf("node %s has runtime %s, want %s…", node, got, want)
		}
		r.pod(node, cluster.Pinned)
	})
}

// inEachMode tries the nodes of a cluster of the versions in each of kubecri's modes.
func inEachMode(t *testing.T, nodes []string, versions cluster.Versions, try func(r *rig, node string)) {
	each := func(r *rig, mode string) {
		for _, node := range nodes {
			r.T.Run(fmt.Sprintf("%s, mode %s", node, mode), func(t *testing.T) {
				r := r.in(t)
				r.advertised(node)
				try(r, node)
			})
		}
	}
	t.Run("our scheduler", func(t *testing.T) {
		r := up(t, cluster.Config{Nodes: nodes, Versions: versions})
		each(r, "proxy")
		for _, node := range nodes {
			r.check(r.SetNRI(r.ctx, node, true))
		}
		each(r, "nri")
	})
	t.Run("stock scheduler", func(t *testing.T) {
		each(up(t, cluster.Config{Nodes: nodes, DevicePlugin: nodes, StockScheduler: true, Versions: versions}), "device-plugin")
	})
}

// TestAPIServers has a whole cluster of an older version, but for our programs.
func TestAPIServers(t *testing.T) {
	nodes := []string{"node-a", "node-b"}
	for _, version := range versions(t, "API_SERVERS", version.OlderKubernetes()...) {
		t.Run("API server "+version, func(t *testing.T) {
			r := up(t, cluster.Config{Nodes: nodes, NRI: nodes[1:], SchedulerArgs: []string{"--emulated-version=" + version},
				Versions: cluster.Versions{ControlPlane: version, Kubelets: map[string]string{nodes[0]: version, nodes[1]: version}}})
			server, err := r.kube.Discovery().ServerVersion()
			r.check(err)
			if !strings.HasPrefix(server.GitVersion, "v"+version+".") {
				t.Fatalf("the API server is %s, want %s", server.GitVersion, version)
			}
			for _, node := range nodes {
				r.advertised(node)
				r.pod(node, version)
			}
			r.await("an Instance with both nodes", func() (bool, string) {
				out, err := r.Kubectl(r.ctx, "get", "instances", "-o", "jsonpath={.items[*].spec.nodes}")
				r.check(err)
				return strings.Count(out, `["node-a","node-b"]`) == 2, out
			})
			if out, err := r.Kubectl(r.ctx, "kubeslot", "doctor"); err != nil {
				t.Errorf("kubectl kubeslot doctor: %v\n%s", err, out)
			}
			r.dra()
		})
	}
}

// dra has DRA give the cameras, where the API server has what that needs; an older one's users are refused.
func (r *rig) dra() {
	r.Helper()
	const toDRA = `{"spec":{"allocator":"DRA"}}`
	server, err := r.kube.Discovery().ServerVersion()
	r.check(err)
	out, err := r.Kubectl(r.ctx, "patch", "configuration", "cameras", "--type=merge", "-p", toDRA)
	if utilversion.MustParseGeneric(server.GitVersion).LessThan(utilversion.MajorMinor(1, 36)) {
		if err == nil || !strings.Contains(err.Error()+out, "needs Kubernetes 1.36 or newer") {
			r.Errorf("spec.allocator DRA: %v: %s", err, out)
		}
		return
	}
	r.check(err)
	claims := resourceapi.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Name: "camera"}}
	claims.Spec.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: "camera",
		Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: v1alpha1.DeviceClassName("cameras")}}}
	_, err = r.kube.ResourceV1().ResourceClaimTemplates("default").Create(r.ctx, &claims, metav1.CreateOptions{})
	r.check(err)
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "by-claim"}, Spec: corev1.PodSpec{
		ResourceClaims: []corev1.PodResourceClaim{{Name: "camera", ResourceClaimTemplateName: &claims.Name}},
		Containers: []corev1.Container{{Name: "main", Image: cluster.AppImage, ImagePullPolicy: corev1.PullNever,
			Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "camera"}}}}}}}
	_, err = r.kube.CoreV1().Pods("default").Create(r.ctx, p, metav1.CreateOptions{})
	r.check(err)
	r.await("a pod with a claim to run", func() (bool, string) {
		p, err := r.kube.CoreV1().Pods("default").Get(r.ctx, p.Name, metav1.GetOptions{})
		r.check(err)
		return p.Status.Phase == corev1.PodRunning, fmt.Sprint(p.Status.Phase, p.Status.Conditions)
	})
	list, err := r.client.KubeslotV1alpha1().SlotClaims().List(r.ctx, metav1.ListOptions{})
	r.check(err)
	if len(list.Items) != 1 || !list.Items[0].Spec.ByDRA() {
		r.Errorf("the slots' claims are %+v, want one by DRA", list.Items)
	}
}
