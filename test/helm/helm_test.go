// Package helm installs the chart with real helm on a real cluster that has nothing of
// Kubeslot: a stock scheduler, kubelets that talk to containerd.
package helm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"github.com/kubeslot/kubeslot/deploy/images"
	"github.com/kubeslot/kubeslot/test/cluster"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/client/clientset/versioned"
)

const (
	namespace = "kubeslot-system"
	registry  = "kubeslot.test"
	version   = "v0.0.0-test"
	chart     = "../../deploy/helm/kubeslot"

	// patience is how long anything may take on a slow machine.
	patience = 2 * time.Minute
)

// install is a cluster, and helm for it.
type install struct {
	*testing.T
	ctx     context.Context
	cluster *cluster.Cluster
	helm    string
	kube    kubernetes.Interface
	client  versioned.Interface
}

func TestChart(t *testing.T) {
	if os.Getenv("KUBESLOT_E2E") == "" {
		t.Skip("brings up a cluster: run `make test-e2e` as root")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 25*time.Minute)
	defer cancel()
	in := up(t, ctx)

	t.Run("bad values", func(t *testing.T) {
		for set, want := range map[string]string{
			"kubecri.runtime.preset=docker":    "'/kubecri/runtime/preset': value must be one of 'containerd'",
			"scheduler.name=default-scheduler": "/scheduler/name",
			"kubecri.allowedPaths=/dev":        "'/kubecri/allowedPaths': got string, want array",
			"controller.replica=3":             "additional properties 'replica' not allowed",
			"image.registry=":                  "image.registry is not set",
			"kubcri.enabled=false":             "additional properties 'kubcri' not allowed",
		} {
			if out, err := in.tryHelm("template", "kubeslot", chart, "--set", "image.registry=x", "--set", set); err == nil || !strings.Contains(out, want) {
				t.Errorf("with %s helm says %q, want %q", set, out, want)
			}
		}
	})

	before := in.objects()
	in.runHelm(append([]string{"install", "kubeslot", chart, "--create-namespace", "--wait", "--timeout", "5m"}, values...)...)
	in.awaitReady("kubecri", "kube-scheduler", "kubeslot-controller")

	// The stock scheduler is there, and may not have our pods.
	_, err := in.kube.CoreV1().Pods("default").Create(ctx, pod("other", ""), metav1.CreateOptions{})
	if err == nil || !strings.Contains(err.Error(), `set it to "kubeslot"`) {
		t.Errorf("a pod of the default scheduler that asks for a camera: %v", err)
	}
	plain := pod("plain", "")
	plain.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
	in.create(plain)
	in.awaitRunning("plain")

	_, err = in.client.AkriV0().Configurations("default").Create(ctx, &akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Name: "cameras"},
		Spec: akriv0.ConfigurationSpec{Capacity: 1, DiscoveryHandler: akriv0.DiscoveryHandlerInfo{Name: "debugEcho", DiscoveryDetails: "descriptions: [gate, yard]"}}}, metav1.CreateOptions{})
	in.check(err)
	in.create(pod("viewer", "kubeslot"))
	in.awaitRunning("viewer")
	if env := in.kubectl("exec", "viewer", "--", "/app", "env"); !strings.Contains(env, "DEBUG_ECHO_DESCRIPTION") {
		t.Errorf("the viewer's container has no camera:\n%s", env)
	}
	in.await("both cameras to be reached by both nodes", func() (bool, string) {
		list, err := in.client.AkriV0().Instances("default").List(ctx, metav1.ListOptions{})
		in.check(err)
		shown := ""
		for _, i := range list.Items {
			shown += fmt.Sprintf("%s %v\n", i.Name, i.Spec.Nodes)
		}
		return len(list.Items) == 2 && strings.Count(shown, "[node-a node-b]") == 2, shown
	})
	started := in.containerID("viewer")

	// A broker, of a spec that names no scheduler: Akri's have none.
	broker, err := json.Marshal(corev1.PodSpec{Containers: []corev1.Container{{Name: "broker", Image: cluster.AppImage, ImagePullPolicy: corev1.PullNever,
		Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"{{PLACEHOLDER}}": resource.MustParse("1")}}}}})
	in.check(err)
	watched := &akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Name: "watched"}, Spec: akriv0.ConfigurationSpec{Capacity: 1,
		DiscoveryHandler: akriv0.DiscoveryHandlerInfo{Name: "debugEcho", DiscoveryDetails: "descriptions: [door]"},
		BrokerSpec:       &akriv0.BrokerSpec{BrokerPodSpec: &k8sruntime.RawExtension{Raw: broker}}}}
	_, err = in.client.AkriV0().Configurations("default").Create(ctx, watched, metav1.CreateOptions{})
	in.check(err)
	in.await("the broker to be ready", func() (bool, string) {
		c, err := in.client.AkriV0().Configurations("default").Get(ctx, "watched", metav1.GetOptions{})
		in.check(err)
		return c.Status.Brokers != nil && c.Status.Brokers.Ready == 1, fmt.Sprintf("%+v", c.Status)
	})
	in.check(in.client.AkriV0().Configurations("default").Delete(ctx, "watched", metav1.DeleteOptions{}))
	in.await("the broker to be gone", func() (bool, string) {
		list, err := in.kube.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "akri.sh/configuration=watched"})
		in.check(err)
		return len(list.Items) == 0, fmt.Sprintf("%d pods", len(list.Items))
	})

	// An upgrade replaces our pods and leaves those of others alone.
	replaced := in.ourPods("kubecri")
	in.runHelm(append([]string{"upgrade", "kubeslot", chart, "--wait", "--timeout", "5m", "--set", "kubecri.extraArgs={--v=2}"}, values...)...)
	in.await("kubecri's pods to be others", func() (bool, string) {
		after := in.ourPods("kubecri")
		for name := range replaced {
			if after[name] {
				return false, "pod " + name + " is still there"
			}
		}
		return len(after) == 2, fmt.Sprint(after)
	})
	in.awaitReady("kubecri", "kube-scheduler", "kubeslot-controller")
	if id := in.containerID("viewer"); id != started {
		t.Errorf("the viewer's container was %s, and is %s since the upgrade", started, id)
	}
	in.create(pod("second", "kubeslot"))
	in.awaitRunning("second")
	in.runHelm("rollback", "kubeslot", "1", "--wait", "--timeout", "5m")

	in.runHelm("uninstall", "kubeslot", "--wait", "--timeout", "5m")
	in.await("no pod of Kubeslot to be left", func() (bool, string) {
		list, err := in.kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		in.check(err)
		return len(list.Items) == 0, fmt.Sprintf("%d are", len(list.Items))
	})
	if id := in.containerID("viewer"); id != started {
		t.Errorf("the viewer's container was %s, and is %s since Kubeslot went", started, id)
	}
	if _, err := in.client.AkriV0().Configurations("default").Get(ctx, "cameras", metav1.GetOptions{}); err != nil {
		t.Errorf("the Configuration went with the chart: %v", err)
	}
	for name := range in.objects() {
		if !before[name] && !made[name] {
			t.Errorf("%s is left", name)
		}
	}
}

// values are those that this cluster needs: images that it has, and its sockets.
var values = []string{
	"--set", "image.registry=" + registry, "--set", "image.tag=" + version, "--set", "image.pullPolicy=Never",
	"--set", "kubecri.runtime.socket=/run/containerd/containerd.sock", "--set", "kubecri.runtime.nriSocket=/run/containerd/nri.sock",
}

// up brings up a stock cluster whose nodes have the images and their runtime's sockets
// where most nodes have them.
func up(t *testing.T, ctx context.Context) *install {
	t.Helper()
	cfg := cluster.Config{Name: "helm", Stock: true}
	if err := cluster.Down(ctx, cfg); err != nil {
		t.Fatal(err)
	}
	c, err := cluster.Up(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	in := &install{T: t, ctx: ctx, cluster: c}
	t.Cleanup(func() {
		if t.Failed() {
			in.dump()
		}
		if os.Getenv("KEEP") == "" {
			in.check(c.Down(context.Background()))
		}
	})
	in.helm, err = c.Helm(ctx)
	in.check(err)
	config, err := c.RESTConfig()
	in.check(err)
	in.kube, err = kubernetes.NewForConfig(config)
	in.check(err)
	in.client, err = versioned.NewForConfig(config)
	in.check(err)

	work := t.TempDir()
	source := images.Source{Root: "../..", Version: version, Revision: "test", Architectures: []string{runtime.GOARCH}}
	for _, component := range images.Components() {
		if strings.HasSuffix(component.Name, "-discovery") {
			continue
		}
		index, err := images.Build(ctx, source, component, work)
		in.check(err)
		archive := filepath.Join(work, component.Name+".tar")
		in.check(images.WriteArchive(archive, registry+"/"+component.Name+":"+version, index))
		for _, node := range c.Nodes() {
			in.run(nil, filepath.Join(c.BinDir(), "ctr"), "--address", node.ContainerdSocket, "--namespace", "k8s.io", "image", "import", archive)
		}
	}
	for _, node := range c.Nodes() {
		for from, to := range map[string]string{
			node.ContainerdSocket:               "/run/containerd/containerd.sock",
			filepath.Join(node.Dir, "nri.sock"): "/run/containerd/nri.sock",
		} {
			in.run(nil, "nsenter", "--mount="+node.MountNS, "sh", "-c", fmt.Sprintf("touch %[2]s && mount --bind %[1]s %[2]s", from, to))
		}
	}
	return in
}

func (in *install) check(err error) {
	in.Helper()
	if err != nil {
		in.Fatal(err)
	}
}

func (in *install) await(what string, ok func() (bool, string)) {
	in.Helper()
	deadline := time.Now().Add(patience)
	for {
		done, state := ok()
		if done {
			return
		}
		if time.Now().After(deadline) {
			in.Fatalf("waited %s for %s: %s", patience, what, state)
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-in.ctx.Done():
			in.Fatalf("%v while waiting for %s: %s", in.ctx.Err(), what, state)
		}
	}
}

// run returns what the command prints.
func (in *install) run(env []string, argv ...string) string {
	in.Helper()
	out, err := in.try(env, argv...)
	if err != nil {
		in.Fatalf("%s: %v\n%s", strings.Join(argv, " "), err, out)
	}
	return out
}

func (in *install) try(env []string, argv ...string) (string, error) {
	cmd := exec.CommandContext(in.ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

func (in *install) runHelm(args ...string) {
	in.Helper()
	if out, err := in.tryHelm(args...); err != nil {
		in.Fatalf("helm %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func (in *install) tryHelm(args ...string) (string, error) {
	home := in.cluster.Config().StateDir
	return in.try([]string{"KUBECONFIG=" + in.cluster.Kubeconfig(), "HELM_CACHE_HOME=" + home, "HELM_CONFIG_HOME=" + home, "HELM_DATA_HOME=" + home},
		append([]string{in.helm, "--namespace", namespace}, args...)...)
}

func (in *install) kubectl(args ...string) string {
	in.Helper()
	out, err := in.cluster.Kubectl(in.ctx, args...)
	in.check(err)
	return out
}

// pod asks for a camera.
func pod(name, scheduler string) *corev1.Pod {
	grace := int64(1)
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{SchedulerName: scheduler, TerminationGracePeriodSeconds: &grace,
		Containers: []corev1.Container{{Name: "main", Image: cluster.AppImage, ImagePullPolicy: corev1.PullNever,
			Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"akri.sh/cameras": resource.MustParse("1")}}}}}}
}

func (in *install) create(p *corev1.Pod) {
	in.Helper()
	_, err := in.kube.CoreV1().Pods("default").Create(in.ctx, p, metav1.CreateOptions{})
	in.check(err)
}

func (in *install) awaitRunning(name string) {
	in.Helper()
	in.await("pod "+name+" to run", func() (bool, string) {
		p, err := in.kube.CoreV1().Pods("default").Get(in.ctx, name, metav1.GetOptions{})
		in.check(err)
		return p.Status.Phase == corev1.PodRunning, fmt.Sprintf("%s %v %v", p.Status.Phase, p.Status.Conditions, p.Status.ContainerStatuses)
	})
}

func (in *install) containerID(name string) string {
	in.Helper()
	p, err := in.kube.CoreV1().Pods("default").Get(in.ctx, name, metav1.GetOptions{})
	in.check(err)
	if len(p.Status.ContainerStatuses) == 0 || p.Status.ContainerStatuses[0].State.Running == nil {
		in.Fatalf("pod %s does not run: %v", name, p.Status)
	}
	return p.Status.ContainerStatuses[0].ContainerID
}

// ourPods are the pods of a component, by name.
func (in *install) ourPods(component string) map[string]bool {
	in.Helper()
	list, err := in.kube.CoreV1().Pods(namespace).List(in.ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + component})
	in.check(err)
	names := map[string]bool{}
	for _, p := range list.Items {
		names[p.Name] = true
	}
	return names
}

// awaitReady waits until the pods of the DaemonSet and the Deployments are ready.
func (in *install) awaitReady(daemonSet string, deployments ...string) {
	in.Helper()
	in.await(daemonSet+" to be ready on both nodes", func() (bool, string) {
		d, err := in.kube.AppsV1().DaemonSets(namespace).Get(in.ctx, daemonSet, metav1.GetOptions{})
		in.check(err)
		s := d.Status
		return s.ObservedGeneration == d.Generation && s.UpdatedNumberScheduled == 2 && s.NumberReady == 2, fmt.Sprintf("%+v", s)
	})
	for _, name := range deployments {
		in.await(name+" to be available", func() (bool, string) {
			d, err := in.kube.AppsV1().Deployments(namespace).Get(in.ctx, name, metav1.GetOptions{})
			in.check(err)
			s := d.Status
			return s.ObservedGeneration == d.Generation && s.UpdatedReplicas == *d.Spec.Replicas && s.AvailableReplicas == *d.Spec.Replicas, fmt.Sprintf("%+v", s)
		})
	}
}

// objects are those of the kinds that the chart makes, but for what it is to leave.
func (in *install) objects() map[string]bool {
	in.Helper()
	names := map[string]bool{}
	for _, kind := range []string{"validatingadmissionpolicies", "validatingadmissionpolicybindings", "clusterroles", "clusterrolebindings", "flowschemas",
		"poddisruptionbudgets", "roles", "rolebindings", "serviceaccounts", "configmaps", "secrets", "leases", "deployments", "daemonsets"} {
		out := in.kubectl("get", kind, "-A", "-o", `jsonpath={range .items[*]}{.kind} {.metadata.namespace}/{.metadata.name}{"\n"}{end}`)
		for line := range strings.Lines(out) {
			names[strings.TrimSpace(line)] = true
		}
	}
	return names
}

// made are by Kubernetes for every namespace, and by leader election, which has no end.
var made = map[string]bool{
	"ServiceAccount " + namespace + "/default": true, "ConfigMap " + namespace + "/kube-root-ca.crt": true,
	"Lease " + namespace + "/kubeslot-scheduler": true, "Lease kube-system/kubeslot-controller": true,
}

// dump says what there is when the test has failed.
func (in *install) dump() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	in.ctx = ctx
	for _, args := range [][]string{
		{"get", "pods", "-A", "-o", "wide"},
		{"describe", "pods", "-n", namespace},
		{"logs", "-n", namespace, "daemonset/kubecri", "--tail=40"},
		{"logs", "-n", namespace, "deployment/kube-scheduler", "--tail=40"},
		{"logs", "-n", namespace, "deployment/kubeslot-controller", "--tail=40"},
	} {
		out, err := in.cluster.Kubectl(ctx, args...)
		in.Logf("kubectl %s\n%s%v", strings.Join(args, " "), out, errors.Join(err))
	}
}
