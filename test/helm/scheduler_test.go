package helm

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// Under an older API server the scheduler has that one's feature gates.
func TestEmulatedVersion(t *testing.T) {
	h := newHelm(t, 4)
	for version, want := range map[string]string{"1.34.4-eks-99d6cc0": "--emulated-version=1.34",
		"1.36.0": "--emulated-version=1.36", "1.37.2": "", "1.38.0": ""} {
		scheduler := container(h.render(t, "--kube-version", version).get(t, "Deployment", "kube-scheduler"))
		got := ""
		for _, arg := range scheduler["args"].([]any) {
			if strings.HasPrefix(arg.(string), "--emulated-version") {
				got = arg.(string)
			}
		}
		all := h.render(t, "--kube-version", version, "--set", "scheduler.extraArgs={--emulated-version=kube=1.34}")
		own := fmt.Sprint(container(all.get(t, "Deployment", "kube-scheduler"))["args"])
		if strings.Count(own, "--emulated-version") != 1 { // it takes one
			t.Errorf("with a version of one's own the scheduler has %s", own)
		}
		if got != want {
			t.Errorf("under API server %s the scheduler has %q, want %q", version, got, want)
		}
	}
}

func TestPodsOfOtherSchedulers(t *testing.T) {
	h := newHelm(t, 4)
	const name = "kubeslot-scheduler-name"
	all := h.render(t, "--set", "scheduler.otherSchedulers=Ignore")
	if all.has("ValidatingAdmissionPolicy", name) || all.has("MutatingAdmissionPolicy", name) {
		t.Error("they are to be ignored, and there is a policy")
	}
	if all := h.render(t); !all.has("ValidatingAdmissionPolicy", name) || all.has("MutatingAdmissionPolicy", name) {
		t.Error("they are to be refused, and there is no policy for it alone")
	}
	const beta, ga = "admissionregistration.k8s.io/v1beta1", "admissionregistration.k8s.io/v1"
	for versions, want := range map[string]string{
		beta + "/MutatingAdmissionPolicy":                                    beta,
		beta + "/MutatingAdmissionPolicy," + ga + "/MutatingAdmissionPolicy": ga,
	} {
		all := h.render(t, "--set", "scheduler.otherSchedulers=Mutate", "--api-versions", versions)
		if got := all.get(t, "MutatingAdmissionPolicy", name).GetAPIVersion(); got != want {
			t.Errorf("where there is %s the policy is of %s", versions, got)
		}
		if !all.has("ValidatingAdmissionPolicy", name) {
			t.Error("pods that name another scheduler are not refused")
		}
	}
}

func TestSchedulerConfiguration(t *testing.T) {
	h := newHelm(t, 4)
	const further, policy = "kubeslot:kube-scheduler-claims-pods", "kubeslot-scheduler-claims"
	checksum := func(all objects) any {
		pods := all.get(t, "Deployment", "kube-scheduler")
		return field(pods, "spec", "template", "metadata", "annotations", "checksum/config")
	}
	as := h.render(t)
	if as.has("ClusterRoleBinding", further) || as.has("ValidatingAdmissionPolicy", policy) {
		t.Error("a scheduler that does not claim slots itself has the rights to")
	}
	const args = `[{"name":"ConfigurationResources","args":{"strategy":"Pack","claimMode":"Scheduler"}}]`
	all := h.render(t, "--set-json", "scheduler.pluginConfig="+args,
		"--set", "scheduler.clientConnection.qps=200,scheduler.clientConnection.burst=400")
	if !all.has("ClusterRoleBinding", further) || !all.has("ValidatingAdmissionPolicy", policy) {
		t.Error("a scheduler that claims slots itself lacks the rights to, or what narrows them")
	}
	const own = "kubeslot:kube-scheduler-claims"
	if !all.has("ClusterRole", own) || all.has("ClusterRoleBinding", own) {
		t.Error("the cluster's own scheduler has the rights, too")
	}
	if checksum(all) == checksum(as) {
		t.Error("another configuration starts no new pods")
	}
	var got any
	text := field(all.get(t, "ConfigMap", "kube-scheduler"), "data", "config.yaml").(string)
	if err := yaml.UnmarshalStrict([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
		"leaderElection": map[string]any{
			"leaderElect": true, "resourceNamespace": "kubeslot-system", "resourceName": "kubeslot-scheduler"},
		"clientConnection": map[string]any{"qps": 200.0, "burst": 400.0},
		"profiles": []any{map[string]any{"schedulerName": "kubeslot", "pluginConfig": []any{map[string]any{
			"name": "ConfigurationResources", "args": map[string]any{"strategy": "Pack", "claimMode": "Scheduler"}}}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the scheduler's configuration (-want +got):\n%s", diff)
	}
}
