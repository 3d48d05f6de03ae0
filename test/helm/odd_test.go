package helm

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// Names that are numbers for YAML, and texts with its characters, stay as they are.
func TestOddValues(t *testing.T) {
	out, err := newHelm(t, 4).try(t, "template", "123", chart, "--namespace", "456", "--kube-version", "1.37.2",
		"--set", "image.registry=reg.example/k,ui.enabled=true,monitoring.enabled=true",
		"--set", "debugEcho.configuration.enabled=true",
		"--set-json", `handlers={"udev":{}}`, "--set-json", `ui.clusterName="prod: \"eu\" #1"`,
		"--set-json", `imagePullSecrets=["1",{"name":"2"}]`, "--set-json", `kubecri.allowedPaths=["/dev","/a: b"]`,
		"--set-json", `kubecri.discoveryPropertyNamespaces=["null"]`, "--set-json", `kubecri.stateDirectory="/s: t, u #1"`,
		"--set-json", `scheduler.name="1e3"`, "--set-json", `kubecri.priorityClassName="7"`)
	if err != nil {
		t.Fatal(err)
	}
	all := parse(t, out)
	for _, o := range all {
		data, err := json.Marshal(o.Object)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(data, &metav1.PartialObjectMetadata{}); err != nil {
			t.Errorf("%v: %v", o.Object["metadata"], err)
		}
	}
	var scheduler struct{ LeaderElection map[string]any }
	config := field(all.get(t, "ConfigMap", "kube-scheduler"), "data", "config.yaml").(string)
	if err := yaml.Unmarshal([]byte(config), &scheduler); err != nil ||
		scheduler.LeaderElection["resourceNamespace"] != "456" {
		t.Errorf("%v in the scheduler's\n%s", err, config)
	}
	for _, pod := range all.pods(t) { // they can be read
		if len(pod.Spec.ImagePullSecrets) != 2 {
			t.Errorf("%s has the secrets %v", pod.Name, pod.Spec.ImagePullSecrets)
		}
	}
	for name, want := range map[string]string{"ui": `--cluster-name=prod: "eu" #1`, "kubecri": "--state-dir=/s: t, u #1",
		"discovery": "--handler-allowed-paths=/dev,/a: b"} {
		if !slices.Contains(args(t, all, name), want) {
			t.Errorf("container %s has the arguments %q, want %s", name, args(t, all, name), want)
		}
	}
}

// The notes say to run `helm test` where it has a pod to run: without one it succeeds, and has looked at nothing.
func TestNotesNameATestThatThereIs(t *testing.T) {
	h := newHelm(t, 4)
	for _, set := range []string{"kubecri.enabled=true", "kubecri.enabled=false", "scheduler.enabled=false",
		"kubecri.builtInHandlers={udev}"} {
		out, err := h.try(t, "install", "kubeslot", chart, "--dry-run=client",
			"--set", "image.registry=x", "--set", set)
		if err != nil {
			t.Fatal(err)
		}
		says, is := strings.Contains(out, "helm test kubeslot"), h.render(t, "--set", set).has("Pod", "kubeslot-test")
		if says != is || is != (set == "kubecri.enabled=true") {
			t.Errorf("%s: the notes name the test: %t; there is one: %t", set, says, is)
		}
	}
}

// docs/install.md has the chart without kubecri, and kubecri installed on the nodes.
func TestRoleOfKubecrisThatAreNotTheCharts(t *testing.T) {
	all := newHelm(t, 4).render(t, "--set", "kubecri.enabled=false")
	if !all.has("ClusterRole", "kubeslot:kubecri") || !all.has("ClusterRoleBinding", "kubeslot:kubecri") {
		t.Error("kubecris on nodes have no permissions")
	}
	if all.has("ClusterRoleBinding", "kubeslot:kubecri-pods") {
		t.Error("pods that the chart does not run have permissions")
	}
}
