package helm

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"

	"github.com/kubeslot/kubeslot/test/cluster"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// The life of an installation: pods that run see nothing of it, and nothing is left.
func TestChart(t *testing.T) {
	testAll(t, "upgrades, rolls back and installs again")
	in := up(t, 20*time.Minute)
	before := in.state()
	in.typeHelm("docs/install.md", "helm install")
	in.awaitReady("kubecri", "kube-scheduler", "kubeslot-controller")
	in.typeKubectl("docs/helm.md", "kubectl label namespace")
	in.typeKubectl("docs/helm.md", "kubectl kubeslot doctor") // fails when it finds something
	if out := in.typeKubectl("docs/helm.md", "kubectl -n kubeslot-system logs"); out == "" {
		t.Error("kubecri's log is empty")
	}
	if out := in.typeKubectl("docs/helm.md", "kubectl -n kubeslot-system get daemonset kubecri"); !strings.Contains(out, "DESIRED") {
		t.Errorf("the DaemonSet of kubecri is shown as\n%s", out)
	}
	if out := in.typeHelm("docs/helm.md", "helm show values"); !strings.Contains(out, "builtInHandlers:") {
		t.Errorf("the chart's values are\n%s", out)
	}

	// The stock scheduler is there, and may not have our pods.
	_, err := in.kube.CoreV1().Pods("default").Create(in.ctx, pod("other", "", "cameras"), metav1.CreateOptions{})
	if err == nil || !strings.Contains(err.Error(), `set it to "kubeslot"`) {
		t.Errorf("a pod of the default scheduler that asks for a camera: %v", err)
	}
	in.create(pod("plain", "", ""))
	in.awaitRunning("plain")

	// Two cameras that both nodes reach, and a device that is plugged in.
	in.configure("cameras", "debugEcho", "descriptions: [gate, yard]")
	in.configure("sensors", "udev", `udevRules: ['SUBSYSTEM=="macvtap", KERNELS=="sensor*"']`)
	in.create(pod("viewer", "kubeslot", "cameras"))
	in.create(pod("reader", "kubeslot", "sensors"))
	in.awaitRunning("viewer")
	if env := in.kubectl("exec", "viewer", "--", "/app", "env"); !strings.Contains(env, "DEBUG_ECHO_DESCRIPTION") {
		t.Errorf("the viewer's container has no camera:\n%s", env)
	}
	in.awaitInstances("default", "cameras", 2, "node-a", "node-b")
	tap, err := in.AddMacvtap("node-b", "sensor0")
	in.check(err)
	t.Cleanup(func() { _ = in.RemoveMacvtap("node-b", "sensor0") })
	in.awaitRunning("reader")
	in.kubectl("exec", "reader", "--", "/app", "read", tap.Device, "0")
	started := in.containerID("viewer")
	in.broker()
	in.awaitWebhook()

	if out := in.helm("test", "kubeslot", "--logs", "--timeout", "2m"); !strings.Contains(out, "This container has its device: DEBUG_ECHO_DESCRIPTION") {
		t.Errorf("helm test says\n%s", out)
	}
	if out := in.kubectl("get", "configurations,pods", "-n", namespace, "-o", "name"); strings.Contains(out, "kubeslot-test") {
		t.Errorf("helm test leaves\n%s", out)
	}

	// An upgrade replaces our pods and leaves those of others alone.
	// It brings back what somebody took away, as doctor says.
	replaced := in.ourPods("kubecri")
	in.kubectl("delete", "validatingadmissionpolicybinding/kubeslot-assignment", "clusterrolebinding/kubeslot:controller")
	out, err := in.Kubectl(in.ctx, "kubeslot", "doctor")
	for _, want := range []string{"validatingadmissionpolicy/kubeslot-assignment", "NoPolicy", "clusterrole/kubeslot:controller", "RoleNotBound", "run helm upgrade"} {
		if err == nil || !strings.Contains(out, want) {
			t.Errorf("kubectl kubeslot doctor says of what was taken away (%v)\n%s\nwant %q in it", err, out, want)
		}
	}
	in.typeHelm("docs/helm.md", "helm upgrade", "--set", "kubecri.extraArgs={--v=2}")
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
	in.await("doctor to find nothing after the upgrade", func() (bool, string) {
		out, err := in.Kubectl(in.ctx, "kubeslot", "doctor")
		return err == nil, out
	})
	if id := in.containerID("viewer"); id != started {
		t.Errorf("the viewer's container was %s, and is %s since the upgrade", started, id)
	}
	in.create(pod("second", "kubeslot", "cameras"))
	in.awaitRunning("second")
	second := in.containerID("second")
	in.awaitWebhook() // an upgrade does not take its certificate away
	in.typeHelm("docs/helm.md", "helm rollback")
	in.awaitReady("kubecri", "kube-scheduler", "kubeslot-controller")
	for name, id := range map[string]string{"viewer": started, "second": second} {
		if now := in.containerID(name); now != id {
			t.Errorf("the container of %s was %s, and is %s since the rollback", name, id, now)
		}
	}
	in.kubectl("exec", "reader", "--", "/app", "read", tap.Device, "0")

	// Configurations stay, with their definitions; all else goes, and pods run on.
	in.typeHelm("docs/helm.md", "helm uninstall")
	if id := in.containerID("viewer"); id != started {
		t.Errorf("the viewer's container was %s, and is %s since Kubeslot went", started, id)
	}
	in.kubectl("exec", "reader", "--", "/app", "read", tap.Device, "0")
	in.expect(before, "CustomResourceDefinition /", "APIService /", "Configuration default/", "Instance default/", "Pod default/")
	if _, err := in.client.AkriV0().Configurations("default").Get(in.ctx, "cameras", metav1.GetOptions{}); err != nil {
		t.Errorf("the Configuration went with the chart: %v", err)
	}

	// A new installation takes up what is there: the slots of pods that run are held.
	in.install("--set", "crds.keep=false")
	in.create(pod("third", "kubeslot", "cameras"))
	in.await("the third viewer to wait for a camera", func() (bool, string) {
		out := in.kubectl("get", "events", "--field-selector", "involvedObject.name=third,reason=FailedScheduling", "-o", "jsonpath={.items[*].message}")
		return out != "", out
	})
	in.delete("viewer")
	in.awaitRunning("third")

	// With crds.keep=false nothing at all is left.
	in.delete("plain", "reader", "second", "third")
	in.uninstall()
	in.expect(before)
}

// awaitWebhook waits until a Configuration that cannot work is refused.
func (in *install) awaitWebhook() {
	in.Helper()
	bad := &akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Name: "bad"}, Spec: akriv0.ConfigurationSpec{Capacity: 1,
		DiscoveryHandler: akriv0.DiscoveryHandlerInfo{Name: "debugEcho", DiscoveryDetails: "descriptions: [bad]"},
		BrokerSpec:       &akriv0.BrokerSpec{BrokerPodSpec: &k8sruntime.RawExtension{Raw: []byte("{}")}}}}
	in.await("the webhook to refuse a broker without containers", func() (bool, string) {
		_, err := in.client.AkriV0().Configurations("default").Create(in.ctx, bad, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err != nil && strings.Contains(err.Error(), "a broker has at least one container"), fmt.Sprint(err)
	})
}

// broker runs a broker of a spec that names no scheduler, as Akri's have none.
func (in *install) broker() {
	in.Helper()
	broker, err := json.Marshal(corev1.PodSpec{Containers: []corev1.Container{{Name: "broker", Image: cluster.AppImage, ImagePullPolicy: corev1.PullNever,
		Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"{{PLACEHOLDER}}": resource.MustParse("1")}}}}})
	in.check(err)
	watched := &akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Name: "watched"}, Spec: akriv0.ConfigurationSpec{Capacity: 1,
		DiscoveryHandler: akriv0.DiscoveryHandlerInfo{Name: "debugEcho", DiscoveryDetails: "descriptions: [door]"},
		BrokerSpec:       &akriv0.BrokerSpec{BrokerPodSpec: &k8sruntime.RawExtension{Raw: broker}}}}
	_, err = in.client.AkriV0().Configurations("default").Create(in.ctx, watched, metav1.CreateOptions{})
	in.check(err)
	in.await("the broker to be ready", func() (bool, string) {
		c, err := in.client.AkriV0().Configurations("default").Get(in.ctx, "watched", metav1.GetOptions{})
		in.check(err)
		return c.Status.Brokers != nil && c.Status.Brokers.Ready == 1, fmt.Sprintf("%+v", c.Status)
	})
	in.check(in.client.AkriV0().Configurations("default").Delete(in.ctx, "watched", metav1.DeleteOptions{}))
	in.await("the broker to be gone", func() (bool, string) {
		list, err := in.kube.CoreV1().Pods("default").List(in.ctx, metav1.ListOptions{LabelSelector: "akri.sh/configuration=watched"})
		in.check(err)
		return len(list.Items) == 0, fmt.Sprintf("%d pods", len(list.Items))
	})
}

// Another way to install: sockets where k3s has them, handlers as DaemonSets, pods of the
// default scheduler taken over, slots claimed by the scheduler, Configurations in Akri's values.
func TestChartWithOtherValues(t *testing.T) {
	testAll(t, "upgrades and rolls back with other values")
	in := up(t, 12*time.Minute)
	before := in.state()
	for _, n := range in.Nodes() {
		in.check(in.MountSockets(in.ctx, n, "/run/k3s/containerd/containerd.sock", "/run/nri/nri.sock"))
	}
	in.operatorCRDs()
	values := []string{"--set", "kubecri.runtime.preset=k3s", "--set", "kubecri.builtInHandlers={mdns}", "--set-json", `handlers={"debug-echo":{},"udev":{}}`,
		"--set", "scheduler.otherSchedulers=Mutate", "--set", "networkPolicy.enabled=true",
		"--set-json", `scheduler.pluginConfig=[{"name":"ConfigurationResources","args":{"claimMode":"Scheduler"}}]`,
		"--set", "debugEcho.configuration.enabled=true", "--set", "debugEcho.configuration.capacity=1", "--set",
		"monitoring.nodes=true", "--set", "ui.enabled=true,ui.proxyTokenHeader=X-Forwarded-Access-Token"}
	in.install(values...)
	in.monitored()
	in.awaitReady("kubeslot-debug-echo-discovery")
	in.awaitReady("kubeslot-udev-discovery", "kubeslot-ui")
	in.seesPage()
	in.awaitInstances(namespace, "akri-debug-echo", 2, "node-a", "node-b")
	in.configure("sensors", "udev", `udevRules: ['SUBSYSTEM=="macvtap", KERNELS=="sensor*"']`)
	tap, err := in.AddMacvtap("node-a", "sensor1")
	in.check(err)
	t.Cleanup(func() { _ = in.RemoveMacvtap("node-a", "sensor1") })

	if p := in.create(pod("viewer", "", "akri-debug-echo")); p.Spec.SchedulerName != "kubeslot" {
		t.Errorf("a pod without a scheduler's name has the scheduler %q", p.Spec.SchedulerName)
	}
	_, err = in.kube.CoreV1().Pods("default").Create(in.ctx, pod("other", "mine", "akri-debug-echo"), metav1.CreateOptions{})
	if err == nil || !strings.Contains(err.Error(), `set it to "kubeslot"`) {
		t.Errorf("a pod that names another scheduler: %v", err)
	}
	if p := in.create(pod("plain", "", "")); p.Spec.SchedulerName != "default-scheduler" {
		t.Errorf("a pod without devices has the scheduler %q", p.Spec.SchedulerName)
	}
	in.create(pod("reader", "", "sensors"))
	for _, name := range []string{"viewer", "plain", "reader"} {
		in.awaitRunning(name)
	}
	in.kubectl("exec", "reader", "--", "/app", "read", tap.Device, "0")

	// The Configuration was a hook, since its kind came with it. The next upgrade takes it
	// over as it is, and a rollback to before that has one.
	uid := in.kubectl("get", "configuration", "akri-debug-echo", "-n", namespace, "-o", "jsonpath={.metadata.uid}")
	in.helm(append([]string{"upgrade", "--wait", "--timeout", "4m", "--set", "debugEcho.configuration.brokerProperties.SITE=yard"}, values...)...)
	if site := in.kubectl("get", "configuration", "akri-debug-echo", "-n", namespace, "-o", "jsonpath={.spec.brokerProperties.SITE}"); site != "yard" {
		t.Errorf("the upgrade has changed nothing: SITE is %q", site)
	}
	if now := in.kubectl("get", "configuration", "akri-debug-echo", "-n", namespace, "-o", "jsonpath={.metadata.uid}"); now != uid {
		t.Errorf("the Configuration's UID was %s, and is %s since the upgrade", uid, now)
	}
	in.delete("viewer")
	in.helm("rollback", "kubeslot", "1", "--wait", "--timeout", "4m")
	in.awaitInstances(namespace, "akri-debug-echo", 2, "node-a", "node-b")
	if site := in.kubectl("get", "configuration", "akri-debug-echo", "-n", namespace, "-o", "jsonpath={.spec.brokerProperties.SITE}"); site != "" {
		t.Errorf("after the rollback SITE is %q", site)
	}

	in.delete("plain", "reader")
	in.kubectl("delete", "configuration", "sensors")
	in.uninstall()
	in.typeKubectl("docs/helm.md", "kubectl delete crd")
	in.kubectl("delete", "crd", "servicemonitors.monitoring.coreos.com", "prometheusrules.monitoring.coreos.com")
	in.expect(before, "/run/k3s")
}
