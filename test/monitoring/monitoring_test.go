package monitoring

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubeslot/kubeslot/deploy/monitoring"
	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/discovery/standalone"
	"github.com/kubeslot/kubeslot/test/await"
	"github.com/kubeslot/kubeslot/test/cluster"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
)

// On a cluster that is well no alert fires. Then each thing that alerts are for is made to
// happen, by itself, until each alert has fired.
func TestAlertsAndDashboards(t *testing.T) {
	r := up(t)
	// A device plugin of each half, so that their metrics are there.
	r.plugin("./kubecri/soplugins/testdata/src/fickle", r.pluginFile(nodeA, "fickle.so"))
	r.plugin("./plugins/example/scheduler", filepath.Join(r.SchedulerPluginDir(), "widget.so"))
	r.restart(cluster.Kubecri, nodeA)
	r.restart(cluster.Scheduler, "")
	r.configure(namespace, "cameras", "debugEcho", "descriptions: [yard]", 1)
	r.configure(namespace, "plenty", "debugEcho", "descriptions: [plenty]", 5)
	camera, plenty := r.slots("cameras", 1), r.slots("plenty", 5)
	r.create(pod("holder", nodeA, "cameras"))
	r.awaitRunning("holder")
	await.That(t, "all components to be read, and no alert to fire", func() (bool, string) {
		up, err := r.prometheus.series(t, "up == 1")
		r.check(err)
		firing := names(r.prometheus.firing(t))
		return up == 4 && len(firing) == 0, fmt.Sprintf("%d components, firing %v", up, firing)
	})
	r.stays("no alert to fire on a cluster that is well", 5*time.Second, func() (bool, string) {
		firing := names(r.prometheus.firing(t))
		return len(firing) == 0, fmt.Sprint(firing)
	})

	for _, happen := range []struct {
		name string
		what func(r *rig)
	}{
		{"pods wait", func(r *rig) {
			r.create(pod("waiter", nodeB, "cameras"))
			r.prometheus.awaitAlert(r.T, "KubeslotSlotsExhausted", map[string]string{"configuration": "cameras"})
			r.prometheus.awaitAlert(r.T, "KubeslotPodsWaiting", map[string]string{"configuration": "cameras", "reason": "Held"})
			r.create(pod("stranger", nodeB, "made-up"))
			r.prometheus.awaitAlert(r.T, "KubeslotPodsWaiting", map[string]string{"configuration": "<unknown>", "reason": "UnknownResource"})
			r.delete("stranger")
		}},
		{"the log says what becomes of slots", func(r *rig) { r.logOfSlots(camera[0]) }},
		{"claims", func(r *rig) {
			r.claim(plenty[4], nodeA)
			r.prometheus.awaitAlert(r.T, "KubeslotClaimsWithoutPods", map[string]string{"configuration": "plenty"})
			beyond := r.claimBeyond(plenty[4])
			r.kill(cluster.Controller, "") // it would delete the claim at once
			r.claim(beyond, nodeA)
			r.prometheus.awaitAlert(r.T, "KubeslotReportsIgnored", map[string]string{"what": "claims"})
			r.check(r.Start(cluster.Controller, ""))
		}},
		{"a claim of a slot in use is another node's", func(r *rig) {
			r.kill(cluster.Kubecri, nodeA) // it would make the claim again
			held := r.claimOf("holder")
			r.check(r.client.KubeslotV1alpha1().SlotClaims().Delete(r.ctx, held, metav1.DeleteOptions{}))
			r.claim(held, nodeB)
			r.check(r.Start(cluster.Kubecri, nodeA))
			r.prometheus.awaitAlert(r.T, "KubeslotSlotLost", map[string]string{"node": nodeA})
		}},
		{"a slot is assigned twice", func(r *rig) { r.assignTwice("plenty") }},
		{"rights are missing", func(r *rig) {
			r.create(pod("leaver", nodeB, "plenty"))
			r.awaitRunning("leaver")
			back := r.without("slotclaims", "nodes/status")
			r.delete("leaver")
			r.prometheus.awaitAlert(r.T, "KubeslotReleasesPending", map[string]string{"node": nodeB})
			r.configure(namespace, "later", "debugEcho", "descriptions: [later]", 1)
			r.prometheus.awaitAlert(r.T, "KubeslotAdvertisingFails", map[string]string{"node": nodeB})
			back()
			r.slots("later", 1)
		}},
		{"a pod past the scheduler", func(r *rig) {
			r.create(pod("past", "", "plenty", func(p *corev1.Pod) { p.Spec.NodeName = nodeA }))
			r.prometheus.awaitAlert(r.T, "KubeslotContainersRefused", map[string]string{"node": nodeA, "result": "refused"})
			r.delete("past")
		}},
		{"a container past kubecri", func(r *rig) {
			r.create(pod("passed", nodeA, "plenty"))
			r.awaitRunning("passed")
			r.createPast("passed", nodeA)
			r.prometheus.awaitAlert(r.T, "KubeslotContainersWithoutDevices", map[string]string{"node": nodeA})
			r.delete("passed")
		}},
		{"no runtime", func(r *rig) {
			r.kill(cluster.Containerd, nodeB)
			r.prometheus.awaitAlert(r.T, "KubeslotRuntimeUnreachable", map[string]string{"node": nodeB})
			r.check(r.Start(cluster.Containerd, nodeB))
			r.check(r.AwaitServing(r.ctx, cluster.Containerd, nodeB))
		}},
		{"the state directory cannot be written", func(r *rig) {
			inTheWay := filepath.Join(r.node(nodeB).KubecriDir, ".checkpoint.json.tmp")
			r.check(os.MkdirAll(filepath.Join(inTheWay, "x"), 0o700))
			r.create(pod("unsaved", nodeB, "plenty"))
			r.awaitRunning("unsaved")
			r.prometheus.awaitAlert(r.T, "KubeslotCheckpointNotWritten", map[string]string{"node": nodeB})
			r.check(os.RemoveAll(inTheWay))
			r.delete("unsaved")
		}},
		{"Configurations with problems", func(r *rig) {
			r.configure(namespace, "misspelt", "debugEco", "", 1)
			// One that was written while no controller was there to refuse it.
			r.check(r.kube.AdmissionregistrationV1().ValidatingWebhookConfigurations().Delete(r.ctx, "kubeslot-configurations", metav1.DeleteOptions{}))
			await.That(r.T, "an invalid Configuration to be stored", func() (bool, string) {
				_, err := r.client.AkriV0().Configurations(namespace).Create(r.ctx, &akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Name: "invalid"},
					Spec: akriv0.ConfigurationSpec{Capacity: 1, DiscoveryHandler: akriv0.DiscoveryHandlerInfo{Name: "debugEcho", DiscoveryDetails: "descriptions: 7"}}}, metav1.CreateOptions{})
				return err == nil, fmt.Sprint(err)
			})
			r.prometheus.awaitAlert(r.T, "KubeslotConfigurationProblem", map[string]string{"configuration": "invalid", "reason": "InvalidDiscoveryDetails"})
			r.prometheus.awaitAlert(r.T, "KubeslotDiscoveryHandlerDown", map[string]string{"configuration": "misspelt", "reason": "UnknownHandler"})
		}},
		{"a handler goes", func(r *rig) {
			ctx, stop := context.WithCancel(r.ctx)
			ended := make(chan error, 1)
			go func() {
				ended <- standalone.Serve(ctx, lamps{}, standalone.Options{Directory: r.node(nodeB).HandlersDir})
			}()
			r.configure(namespace, "lamps", "lamps", "", 1)
			await.That(r.T, "the handler's device", func() (bool, string) {
				list, err := r.client.AkriV0().Instances(namespace).List(r.ctx, metav1.ListOptions{})
				r.check(err)
				return slices.ContainsFunc(list.Items, func(in akriv0.Instance) bool { return in.Spec.ConfigurationName == "lamps" }), fmt.Sprint(len(list.Items))
			})
			stop()
			r.check(<-ended)
			r.prometheus.awaitAlert(r.T, "KubeslotDevicesUnschedulable", map[string]string{"configuration": "lamps"})
		}},
		{"brokers", func(r *rig) {
			r.configure(namespace, "watched", "debugEcho", "descriptions: [door]", 1, withBroker(r))
			_, err := r.kube.CoreV1().Namespaces().Create(r.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "full"}}, metav1.CreateOptions{})
			r.check(err)
			_, err = r.kube.CoreV1().ResourceQuotas("full").Create(r.ctx, &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "full"},
				Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}}}, metav1.CreateOptions{})
			r.check(err)
			r.configure("full", "unwatched", "debugEcho", "descriptions: [gate]", 1, withBroker(r))
			r.prometheus.awaitAlert(r.T, "KubeslotBrokersRefused", map[string]string{"kind": "Pod"})
			r.configure(namespace, "many", "debugEcho", "descriptions: [d0, d1, d2]", 1, withBroker(r), func(c *akriv0.ConfigurationSpec) {
				c.MaxInstances, c.BrokerLimits = 2, &akriv0.BrokerLimits{Total: 1}
			})
			r.prometheus.awaitAlert(r.T, "KubeslotBrokerLimit", map[string]string{"configuration": "many"})
			r.prometheus.awaitAlert(r.T, "KubeslotInstanceLimit", map[string]string{"configuration": "many"})
			r.check(r.client.AkriV0().Configurations("full").Delete(r.ctx, "unwatched", metav1.DeleteOptions{}))
		}},
		{"a node without kubecri", func(r *rig) {
			_, err := r.kube.CoreV1().Nodes().Create(r.ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "ghost", Labels: map[string]string{corev1.LabelOSStable: "linux"}}}, metav1.CreateOptions{})
			r.check(err)
			r.prometheus.awaitAlert(r.T, "KubeslotNodeWithoutKubecri", nil)
			_, err = r.client.AkriV0().Instances(namespace).Create(r.ctx, &akriv0.Instance{ObjectMeta: metav1.ObjectMeta{Name: "plenty-abcdef"},
				Spec: akriv0.InstanceSpec{ConfigurationName: "plenty", Capacity: 5, Shared: true, Nodes: []string{"ghost"}}}, metav1.CreateOptions{})
			r.check(err)
			r.prometheus.awaitAlert(r.T, "KubeslotInstancesNotUpgraded", nil)
		}},
		{"a node that is off keeps a slot", func(r *rig) { r.nodeOff(plenty[3]) }},
		{"plugins", func(r *rig) {
			r.write(r.pluginFile(nodeA, "fickle"), "UpdateNodeInfo panic\n")
			r.check(os.WriteFile(r.pluginFile(nodeA, "bad.so"), []byte("not a plugin\n"), 0o600))
			r.check(r.SetKubecriArgs(r.ctx, nodeA, "--cridevices-bad-plugins=skip"))
			r.prometheus.awaitAlert(r.T, "KubeslotPluginNotLoaded", nil)
			r.prometheus.awaitAlert(r.T, "KubeslotPluginDown", map[string]string{"node": nodeA, "plugin": "fickle"})
			r.prometheus.awaitAlert(r.T, "KubeslotPluginFaults", map[string]string{"plugin": "fickle", "method": "UpdateNodeInfo", "kind": "panic"})
		}},
		{"commands of the runbooks", (*rig).runbooks},
		{"components are gone", func(r *rig) {
			r.kill(cluster.Kubecri, nodeB)
			r.prometheus.awaitAlert(r.T, "KubeslotKubecriDown", map[string]string{"node": nodeB})
			r.kill(cluster.Scheduler, "")
			r.prometheus.awaitAlert(r.T, "KubeslotSchedulerAbsent", nil)
			r.kill(cluster.Controller, "")
			r.prometheus.awaitAlert(r.T, "KubeslotControllerAbsent", nil)
		}},
	} {
		t.Run(happen.name, func(t *testing.T) {
			r.T = t
			happen.what(r)
		})
	}
	r.T = t
	r.allFired()
	r.dashboards()
}

// stays checks for a while that something stays so.
func (r *rig) stays(what string, during time.Duration, ok func() (bool, string)) {
	r.Helper()
	ticker := time.NewTicker(500 * time.Millisecond)
	defer ticker.Stop()
	for end := time.Now().Add(during); time.Now().Before(end); <-ticker.C {
		if done, state := ok(); !done {
			r.Fatalf("want %s: %s", what, state)
		}
	}
}

// logOfSlots follows a slot through the logs, from pod holder, which has it, to one that
// preempts it, and back.
func (r *rig) logOfSlots(camera string) {
	r.logs(cluster.Scheduler, "", "Assigned devices", `pod="default/holder"`, `container="main"`, `node="node-a"`, camera)
	r.logs(cluster.Kubecri, nodeA, "Claimed slots", `pod="default/holder"`, `container="main"`, camera)
	r.logs(cluster.Kubecri, nodeA, "Injected devices", `pod="default/holder"`, `container="main"`, camera, `devices=["yard"]`)
	_, err := r.kube.SchedulingV1().PriorityClasses().Create(r.ctx, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "vip"}, Value: 1000}, metav1.CreateOptions{})
	r.check(err)
	vip := func(p *corev1.Pod) { p.Spec.PriorityClassName = "vip" }
	await.That(r.T, "the API server to know the PriorityClass", func() (bool, string) {
		_, err := r.kube.CoreV1().Pods(namespace).Create(r.ctx, pod("probe", "", "cameras", vip), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err == nil, fmt.Sprint(err)
	})
	r.create(pod("vip", nodeB, "cameras", vip)) // on the other node: our own preemption
	r.awaitRunning("vip")
	r.logs(cluster.Scheduler, "", "Preempting a pod for its slots", `pod="default/holder"`, `preemptor="default/vip"`, camera)
	r.logs(cluster.Scheduler, "", "Released slots", `pod="default/holder"`, camera)
	r.logs(cluster.Kubecri, nodeA, "Released a slot", `pod="default/holder"`, `container="main"`, camera)
	r.delete("waiter")
	r.delete("vip")
	r.create(pod("holder", nodeA, "cameras"))
	r.awaitRunning("holder")
	// On its own node, where upstream's DefaultPreemption chooses the victim.
	r.create(pod("vip", nodeA, "cameras", vip))
	r.awaitRunning("vip")
	r.logs(cluster.Scheduler, "", "Preempting a pod for its slots", `pod="default/holder"`, `preemptor="default/vip"`, `node="node-a"`, camera)
	r.delete("vip")
	r.create(pod("holder", nodeA, "cameras"))
	r.awaitRunning("holder")
	r.story(camera)
}

// story prints all that the logs have of the slot.
func (r *rig) story(slot string) {
	r.Helper()
	for _, from := range []struct{ component, node string }{{cluster.Scheduler, ""}, {cluster.Kubecri, nodeA}, {cluster.Kubecri, nodeB}} {
		text, err := os.ReadFile(r.LogPath(from.component, from.node))
		r.check(err)
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, slot) {
				r.Logf("%s %s: %s", from.component, from.node, line)
			}
		}
	}
}

// claimOf is the name of the pod's SlotClaim.
func (r *rig) claimOf(pod string) string {
	r.Helper()
	list, err := r.client.KubeslotV1alpha1().SlotClaims().List(r.ctx, metav1.ListOptions{})
	r.check(err)
	for _, c := range list.Items {
		if c.Spec.Pod != nil && c.Spec.Pod.Name == pod {
			return c.Name
		}
	}
	r.Fatalf("pod %s has no SlotClaim", pod)
	return ""
}

// assignTwice binds a pod with the slot of another, as a scheduler that is no longer the
// leader could.
func (r *rig) assignTwice(configuration string) {
	r.create(pod("first", nodeA, configuration))
	first := r.awaitRunning("first")
	second := r.create(pod("second", nodeB, configuration, func(p *corev1.Pod) { p.Spec.SchedulerName = "former-leader" }))
	info, err := assignment.DecodePod(first.Annotations)
	r.check(err)
	info.Name, info.NodeName = "second", nodeB
	notes, err := assignment.Encode(info, string(second.UID), nil)
	r.check(err)
	r.check(r.kube.CoreV1().Pods(namespace).Bind(r.ctx, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "second", UID: second.UID, Annotations: notes},
		Target: corev1.ObjectReference{Kind: "Node", Name: nodeB}}, metav1.CreateOptions{}))
	r.prometheus.awaitAlert(r.T, "KubeslotDoubleAllocation", nil)
}

// withBroker has pods of the test's image as brokers.
func withBroker(r *rig) func(*akriv0.ConfigurationSpec) {
	raw, err := json.Marshal(corev1.PodSpec{Containers: []corev1.Container{{Name: "broker", Image: cluster.AppImage, ImagePullPolicy: corev1.PullNever,
		Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"{{PLACEHOLDER}}": resource.MustParse("1")}}}}})
	r.check(err)
	return func(spec *akriv0.ConfigurationSpec) {
		spec.BrokerSpec = &akriv0.BrokerSpec{BrokerPodSpec: &runtime.RawExtension{Raw: raw}}
	}
}

// lamps is a discovery handler that finds one lamp.
type lamps struct{}

func (lamps) Name() string { return "lamps" }
func (lamps) Shared() bool { return true }
func (lamps) Discover(ctx context.Context, _ discovery.Request, report func(discovery.Result)) error {
	report(discovery.Result{Shared: true, Devices: []discovery.Device{{ID: "lamp"}}})
	<-ctx.Done()
	return nil
}

// elsewhere are commands of the runbooks that are for machines, or for what the chart installs.
var elsewhere = regexp.MustCompile(`kubectl -n kubeslot-system logs|# with the chart$|^(journalctl|systemctl|curl|kubecri|kube-scheduler) `)

// runbooks runs what docs/runbooks.md tells people to.
func (r *rig) runbooks() {
	page, err := os.ReadFile(root + "/docs/runbooks.md")
	r.check(err)
	text := strings.ReplaceAll(string(page), "\\\n", "")
	ran := 0
	for _, m := range regexp.MustCompile(`(?m)^    (\S.*)$`).FindAllStringSubmatch(text, -1) {
		command := strings.NewReplacer("NAME", "cameras", "NODE", nodeA).Replace(m[1])
		if elsewhere.MatchString(command) {
			continue
		}
		ran++
		cmd := exec.CommandContext(r.ctx, "bash", "-c", "set -o pipefail; "+command)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+r.Kubeconfig(), "PATH="+r.BinDir()+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		if finds := strings.Contains(command, "kubeslot doctor"); err != nil && !finds {
			r.Errorf("%s: %v\n%s", command, err, out)
		}
		r.Logf("%s\n%.600s", command, out)
	}
	if ran < 12 {
		r.Errorf("only %d commands were found", ran)
	}
}

// allFired checks that no alert has been left out.
func (r *rig) allFired() {
	r.Helper()
	rules, err := monitoring.ReadRules(folder)
	r.check(err)
	for _, rule := range rules.All() {
		n, err := r.prometheus.series(r.T, `ALERTS{alertstate="firing",alertname="`+rule.Alert+`"}`)
		r.check(err)
		if n == 0 {
			r.Errorf("%s has not fired", rule.Alert)
		}
	}
}

// dashboards asks what each panel asks, over all the time of the test. Each metric that a
// panel or a rule names must be among those that were read.
func (r *rig) dashboards() {
	r.Helper()
	known := r.prometheus.metrics(r.T)
	exists := func(where, expr string) {
		for _, name := range monitoring.Metrics(expr) {
			if !known[name] {
				r.Errorf("%s: no component has metric %s", where, name)
			}
		}
	}
	rules, err := monitoring.ReadRules(folder)
	r.check(err)
	for _, rule := range rules.All() {
		exists(rule.Alert, rule.Expr)
	}
	for _, d := range monitoring.Dashboards() {
		for _, row := range d.Rows {
			for _, panel := range row.Panels {
				for _, query := range panel.Queries {
					where := fmt.Sprintf("dashboard %s, panel %q, %s", d.Name, panel.Title, query.Expr)
					exists(where, query.Expr)
					n, err := r.prometheus.series(r.T, choose.Replace(monitoring.InCluster(query.Expr)))
					if err != nil {
						r.Errorf("%s: %v", where, err)
					}
					if n == 0 && !query.Quiet {
						r.Errorf("%s: nothing to show", where)
					}
				}
			}
		}
	}
}
