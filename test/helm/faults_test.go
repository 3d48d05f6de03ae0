package helm

import (
	"context"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What goes wrong is said, and leaves nothing half done that the next command does not
// take away.
func TestChartFaults(t *testing.T) {
	testAll(t, "has installations fail")
	in := up(t, 15*time.Minute)
	before := in.state()

	in.step("no rights", func(in *install) {
		_, err := in.tryHelm("install", "--create-namespace", "--kube-as-user", "eve")
		if err == nil || !strings.Contains(err.Error(), `User "eve" cannot`) {
			in.Errorf("helm says %v", err)
		}
		in.expect(before)
	})

	in.step("nodes without containerd, or without NRI", func(in *install) {
		in.helm("install", "--create-namespace", "--set", "kubecri.runtime.socket=/run/nowhere/containerd.sock")
		in.await("the event that names the folder", func() (bool, string) {
			out := in.kubectl("get", "events", "-n", namespace, "--field-selector", "reason=FailedMount", "-o", "jsonpath={.items[*].message}")
			return strings.Contains(out, "/run/nowhere is not a directory"), out
		})
		in.helm("upgrade", "--reuse-values", "--set", "kubecri.runtime.socket=", "--set", "kubecri.runtime.nriSocket=/run/nri/off.sock")
		in.await("kubecri to say that there is no NRI", func() (bool, string) {
			out, err := in.Kubectl(in.ctx, "logs", "-n", namespace, "daemonset/kubecri")
			return err == nil && strings.Contains(out, "Not connected to the runtime's NRI") && strings.Contains(out, "/run/nri/off.sock"), out
		})
		d, err := in.kube.AppsV1().DaemonSets(namespace).Get(in.ctx, "kubecri", metav1.GetOptions{})
		in.check(err)
		if d.Status.NumberReady > 0 {
			in.Errorf("%d kubecris are ready, which the runtime does not ask", d.Status.NumberReady)
		}
		in.helm("upgrade", "--reuse-values", "--set", "kubecri.runtime.nriSocket=", "--wait", "--timeout", "4m")
		in.awaitReady("kubecri")
	})

	in.step("a second installation", func(in *install) {
		out, err := in.Rig.Helm(in.ctx, append([]string{"install", "another", in.Chart}, in.Values()...)...)
		if want := "Kubeslot is in this cluster as release kubeslot in namespace kubeslot-system, and a cluster takes one: helm upgrade kubeslot"; err == nil || !strings.Contains(out, want) {
			in.Errorf("helm says %v, want %s", err, want)
		}
		if out := in.helm("list", "--short"); strings.TrimSpace(out) != "kubeslot" {
			in.Errorf("there are the releases\n%s", out)
		}
	})

	// With a node that cannot be reached the others are cleaned, and its part in the API server.
	in.step("a node that is off when Kubeslot goes", func(in *install) {
		in.configure("cameras", "debugEcho", "descriptions: [gate]")
		in.awaitInstances("default", "cameras", 1, "node-a", "node-b")
		in.check(in.Partition("node-b"))
		in.Cleanup(func() { _ = in.Heal("node-b") })
		in.await("node-b to be lost, and to get no pods", func() (bool, string) {
			out := in.kubectl("get", "node", "node-b", "-o", `jsonpath={.spec.taints[?(@.key=="node.kubernetes.io/unreachable")].effect}`)
			return strings.Contains(out, "NoExecute"), out
		})
		out, err := in.tryHelm("uninstall", "kubeslot", "--timeout", "90s")
		if err == nil || !strings.Contains(out, "node node-b: the node is not ready; its files stay: remove them there with `kubecri cleanup`") {
			in.Errorf("helm says %v\n%s", err, out)
		}
		for _, node := range []string{"node-a", "node-b"} {
			if out := in.kubectl("get", "node", node, "-o", "jsonpath={.status.capacity}"); strings.Contains(out, "akri.sh/") {
				in.Errorf("%s still has %s", node, out)
			}
		}
		in.check(in.Heal("node-b"))
		in.await("node-b to be back", func() (bool, string) {
			out := in.kubectl("get", "node", "node-b", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`)
			return out == "True", out
		})
	})

	// The next uninstallation has nothing in its way.
	in.step("an installation that was interrupted", func(in *install) {
		ctx, cancel := context.WithCancel(in.ctx)
		done := make(chan error, 1)
		go func() {
			_, err := in.Rig.Helm(ctx, append([]string{"install", "kubeslot", in.Chart, "--take-ownership", "--wait", "--set", "scheduler.replicas=9"}, in.Values()...)...)
			done <- err
		}()
		in.await("something to be there", func() (bool, string) {
			_, err := in.kube.AppsV1().DaemonSets(namespace).Get(in.ctx, "kubecri", metav1.GetOptions{})
			return err == nil, "no DaemonSet"
		})
		cancel()
		if err := <-done; err == nil {
			in.Fatal("helm had ended before it was interrupted")
		}
		if _, err := in.tryHelm("install"); err == nil || !strings.Contains(err.Error(), "name that is still in use") {
			in.Errorf("the next installation: %v", err)
		}
		in.uninstall()
		in.install()
		in.kubectl("delete", "configurations", "--all")
		in.helm("upgrade", "--reuse-values", "--set", "crds.keep=false", "--wait", "--timeout", "4m")
		in.uninstall()
		in.expect(before, "Secret "+namespace+"/sh.helm.release", "Job "+namespace+"/kubeslot-uninstall", "Pod "+namespace+"/kubeslot-uninstall")
	})
}
