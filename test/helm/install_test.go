// Package helm tries the chart: what it makes of values, and with real helm on a real cluster
// that has nothing of Kubeslot.
package helm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/kubeslot/kubeslot/test/await"
	"github.com/kubeslot/kubeslot/test/cluster"
	"github.com/kubeslot/kubeslot/test/helm/rig"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/client/clientset/versioned"
)

const (
	namespace = rig.Namespace

	// patience is how long anything may take on a slow machine.
	patience = 4 * time.Minute
)

// install is a cluster, and helm for it.
type install struct {
	*testing.T
	*rig.Rig
	ctx     context.Context
	kube    kubernetes.Interface
	client  versioned.Interface
	dynamic dynamic.Interface
}

// shared is the cluster of all tests: each leaves it without Kubeslot.
var shared struct {
	sync.Once
	*rig.Rig
	err error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.Rig != nil && os.Getenv("KEEP") == "" {
		if err := shared.Rig.Down(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// testAll leaves the test to `make test-all`, for what it does. TestGettingStarted is left, which
// installs the chart, uses it and takes it away.
func testAll(t *testing.T, does string) {
	t.Helper()
	if testing.Short() {
		t.Skip(does + ": make test-all")
	}
}

// up returns the cluster, for a test of at most the time.
func up(t *testing.T, limit time.Duration) *install {
	t.Helper()
	if os.Getenv("KUBESLOT_E2E") == "" {
		t.Skip("brings up a cluster: run `make test-e2e` as root")
	}
	shared.Do(func() {
		// Building images for the first time is the most of it.
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Minute)
		defer cancel()
		cfg := cluster.Config{Name: cmp.Or(os.Getenv("CLUSTER"), "helm")}
		more := []string{"debug-echo-discovery", "udev-discovery", "kubeslot-ui"}
		if testing.Short() {
			more = nil // they are for TestChartWithOtherValues
		}
		if shared.err = cluster.Down(ctx, cfg); shared.err == nil {
			shared.Rig, shared.err = rig.Up(ctx, cfg, more...)
		}
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	in := &install{T: t, Rig: shared.Rig, ctx: ctx}
	t.Cleanup(func() {
		if t.Failed() {
			in.dump()
		}
		cancel()
		in.sweep()
	})
	config, err := in.RESTConfig()
	in.check(err)
	in.kube, err = kubernetes.NewForConfig(config)
	in.check(err)
	in.client, err = versioned.NewForConfig(config)
	in.check(err)
	in.dynamic, err = dynamic.NewForConfig(config)
	in.check(err)
	return in
}

// step runs a part of the test, of which the others after it need the outcome.
func (in *install) step(name string, f func(in *install)) {
	in.Helper()
	if !in.Run(name, func(t *testing.T) {
		part := *in
		part.T = t
		f(&part)
	}) {
		in.FailNow()
	}
}

// sweep removes what a test that failed may have left, for the tests after it.
func (in *install) sweep() {
	if !in.Failed() || os.Getenv("KEEP") != "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, _ = in.Rig.Helm(ctx, "uninstall", "kubeslot", "--ignore-not-found", "--wait")
	for _, kind := range []string{"configuration", "instance"} { // of Akri's agents, which are not here
		if names, err := in.Kubectl(ctx, "get", kind, "-n", "default", "-o", "name"); err == nil {
			for name := range strings.Lines(names) {
				_, _ = in.Kubectl(ctx, "patch", strings.TrimSpace(name), "-n", "default", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
			}
		}
	}
	for _, args := range [][]string{
		{"delete", "crd", "--ignore-not-found", "configurations.akri.sh", "instances.akri.sh", "deviceslices.kubeslot.io", "slotclaims.kubeslot.io"},
		{"delete", "pods", "--all", "--namespace=default", "--grace-period=1"},
		{"delete", "pods,jobs", "--all", "--namespace=" + namespace, "--grace-period=1"},
	} {
		_, _ = in.Kubectl(ctx, args...)
	}
}

func (in *install) check(err error) {
	in.Helper()
	if err != nil {
		in.Fatal(err)
	}
}

func (in *install) await(what string, ok func() (bool, string)) {
	in.Helper()
	await.Within(in.T, patience, what, ok)
}

// helm runs helm with this cluster's values after the arguments of install and upgrade.
func (in *install) helm(args ...string) string {
	in.Helper()
	out, err := in.tryHelm(args...)
	in.check(err)
	return out
}

func (in *install) tryHelm(args ...string) (string, error) {
	if args[0] == "install" || args[0] == "upgrade" {
		args = append(append(append([]string{args[0]}, "kubeslot", in.Chart), in.Values()...), args[1:]...)
	}
	return in.Rig.Helm(in.ctx, args...)
}

func (in *install) install(args ...string) {
	in.Helper()
	in.helm(append([]string{"install", "--create-namespace", "--wait", "--timeout", "4m"}, args...)...)
	in.awaitReady("kubecri", "kube-scheduler", "kubeslot-controller")
}

func (in *install) uninstall() {
	in.Helper()
	in.helm("uninstall", "kubeslot", "--wait", "--timeout", "4m")
}

func (in *install) kubectl(args ...string) string {
	in.Helper()
	out, err := in.Kubectl(in.ctx, args...)
	in.check(err)
	return out
}

// apply applies objects of YAML.
func (in *install) apply(text string) {
	in.Helper()
	in.kubectl("apply", "--server-side", "--force-conflicts", "-f", in.file(text))
}

// file is a file with the text.
func (in *install) file(text string) string {
	in.Helper()
	file, err := os.CreateTemp(in.TempDir(), "*.yaml")
	in.check(err)
	_, err = file.WriteString(text)
	in.check(errors.Join(err, file.Close()))
	return file.Name()
}

// warning is what the API server warns of when kubectl does as it is told; "" for nothing.
func (in *install) warning(args ...string) string {
	in.Helper()
	_, err := in.Kubectl(in.ctx, append(args, "--warnings-as-errors")...)
	return errText(err)
}

// pod asks for a device of the Configuration; for none when that is empty.
func pod(name, scheduler, configuration string) *corev1.Pod {
	grace := int64(1)
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{SchedulerName: scheduler, TerminationGracePeriodSeconds: &grace,
		Containers: []corev1.Container{{Name: "main", Image: cluster.AppImage, ImagePullPolicy: corev1.PullNever}}}}
	if configuration != "" {
		p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceName("akri.sh/" + configuration): resource.MustParse("1")}
	}
	return p
}

func (in *install) create(p *corev1.Pod) *corev1.Pod {
	in.Helper()
	created, err := in.kube.CoreV1().Pods("default").Create(in.ctx, p, metav1.CreateOptions{})
	in.check(err)
	return created
}

func (in *install) delete(pods ...string) {
	in.Helper()
	for _, name := range pods {
		in.check(in.kube.CoreV1().Pods("default").Delete(in.ctx, name, metav1.DeleteOptions{}))
	}
	in.await("pods to be gone", func() (bool, string) {
		list, err := in.kube.CoreV1().Pods("default").List(in.ctx, metav1.ListOptions{})
		in.check(err)
		for _, p := range list.Items {
			for _, name := range pods {
				if p.Name == name {
					return false, name
				}
			}
		}
		return true, ""
	})
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

// configure creates a Configuration in namespace default.
func (in *install) configure(name, handler, details string) {
	in.Helper()
	_, err := in.client.AkriV0().Configurations("default").Create(in.ctx, &akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: akriv0.ConfigurationSpec{Capacity: 1, DiscoveryHandler: akriv0.DiscoveryHandlerInfo{Name: handler, DiscoveryDetails: details}}}, metav1.CreateOptions{})
	in.check(err)
}

// awaitInstances waits for as many Instances of a Configuration that each of the nodes reaches.
func (in *install) awaitInstances(namespace, configuration string, want int, nodes ...string) {
	in.Helper()
	in.await(fmt.Sprintf("%d Instances of %s, reached by %v", want, configuration, nodes), func() (bool, string) {
		list, err := in.client.AkriV0().Instances(namespace).List(in.ctx, metav1.ListOptions{})
		in.check(err)
		shown, count := "", 0
		for _, i := range list.Items {
			if i.Spec.ConfigurationName == configuration {
				shown += fmt.Sprintf("%s %v\n", i.Name, i.Spec.Nodes)
				if fmt.Sprint(i.Spec.Nodes) == fmt.Sprint(nodes) {
					count++
				}
			}
		}
		return count == want && strings.Count(shown, "\n") == want, shown
	})
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

// dump says what there is when a test has failed.
func (in *install) dump() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, args := range [][]string{
		{"get", "pods,jobs", "-A", "-o", "wide"},
		{"get", "events", "-A"},
		{"logs", "-n", namespace, "daemonset/kubecri", "--tail=40"},
		{"logs", "-n", namespace, "deployment/kube-scheduler", "--tail=40"},
		{"logs", "-n", namespace, "deployment/kubeslot-controller", "--tail=40"},
		{"logs", "-n", namespace, "job/kubeslot-uninstall", "--tail=40"},
	} {
		out, err := in.Kubectl(ctx, args...)
		in.Logf("kubectl %s\n%s%v", strings.Join(args, " "), out, errors.Join(err))
	}
}
