package helm

import (
	"strings"
	"testing"
	"time"
)

// What a user would wait for in silence is told at once: pods that will be refused, when their
// Deployment is applied; a Configuration that is deleted while pods have its slots; a Kubeslot that was
// uninstalled.
func TestToldAtOnce(t *testing.T) {
	testAll(t, "installs and uninstalls the chart")
	in := up(t, 10*time.Minute)
	in.install()
	in.configure("cameras", "debugEcho", "descriptions: [gate, yard]")
	in.awaitInstances("default", "cameras", 2, "node-a", "node-b")

	// The API server takes a while to enforce policies.
	deployment := in.file(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: viewers}
spec:
  selector: {matchLabels: {app: viewers}}
  template:
    metadata: {labels: {app: viewers}}
    spec:
      containers:
      - {name: main, image: "kubeslot.test/app:1", imagePullPolicy: Never, resources: {limits: {akri.sh/cameras: 1}}}
`)
	in.await("the Deployment to be warned of", func() (bool, string) {
		said := in.warning("apply", "--dry-run=server", "-f", deployment)
		return strings.Contains(said, `its pods will be refused`) && strings.Contains(said, `set it to "kubeslot" in the spec of the pod template`), said
	})
	in.kubectl("apply", "-f", deployment)
	for command, workload := range map[string]string{"pod": "deployment/viewers ", "doctor": "deployment/default/viewers "} {
		in.await("`"+command+"` to list the workload", func() (bool, string) {
			out, err := in.Kubectl(in.ctx, "kubeslot", command)
			return strings.Contains(out, workload) && strings.Contains(out, "PodsRefused"), out + errText(err)
		})
	}
	in.kubectl("patch", "deployment", "viewers", "--type=merge", "-p", `{"spec":{"template":{"spec":{"schedulerName":"kubeslot"}}}}`)
	in.kubectl("rollout", "status", "deployment", "viewers", "--timeout=2m")
	if out := in.kubectl("kubeslot", "pod"); strings.Contains(out, "PodsRefused") || !strings.Contains(out, "Running") {
		t.Errorf("once it is corrected, `pod` says\n%s", out)
	}

	in.await("the Configuration to count its slots", func() (bool, string) {
		out := in.kubectl("get", "configuration", "cameras", "-o", "jsonpath={.status.slots.held}")
		return out == "1", out
	})
	if said := in.warning("delete", "configuration", "cameras"); !strings.Contains(said, "Configuration cameras is deleted while 1 of its slots are in use") {
		t.Errorf("the deletion says %q", said)
	}
	for command, want := range map[string]string{"list": "deleted while 1 pod has its slots", "doctor": "Configuration cameras was deleted while 1 pod has its slots: apply it again, or delete it (default/viewers-"} {
		in.await("`"+command+"` to say that the Configuration was deleted", func() (bool, string) {
			out, err := in.Kubectl(in.ctx, "kubeslot", command)
			return strings.Contains(out, want), out + errText(err)
		})
	}
	in.kubectl("delete", "deployment", "viewers", "--wait")

	in.configure("cameras", "debugEcho", "descriptions: [gate, yard]")
	in.awaitInstances("default", "cameras", 2, "node-a", "node-b")
	in.uninstall()
	if out := in.kubectl("get", "configuration", "cameras", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].reason}`); out != "NotInstalled" {
		t.Errorf("a Configuration of a Kubeslot that was uninstalled is %q", out)
	}
	out, err := in.Kubectl(in.ctx, "kubeslot", "doctor", "--no-headers")
	if err == nil || !strings.HasPrefix(out, "cluster   NotInstalled") || strings.Count(out, "\n") != 1 {
		t.Errorf("doctor says of a Kubeslot that was uninstalled: %v\n%s", err, out)
	}
	in.kubectl("delete", "crd", "-l", "app.kubernetes.io/part-of=kubeslot")
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
