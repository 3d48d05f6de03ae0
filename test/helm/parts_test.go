package helm

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// parts are the values of the chart's parts, and the objects with their pods.
var parts = map[string]string{
	"scheduler": "Deployment/kube-scheduler", "controller": "Deployment/kubeslot-controller",
	"kubecri":       "DaemonSet/kubecri",
	"handlers.udev": "DaemonSet/kubeslot-udev-discovery", "uninstall": "Job/kubeslot-uninstall",
	"ui": "Deployment/kubeslot-ui",
}

// allParts has the chart render those that it does not by default.
var allParts = []string{"--set-json", `handlers={"udev":{}}`, "--set", "ui.enabled=true"}

// Each part takes the values that all parts have, and its own labels and annotations stay.
func TestValuesOfEachPart(t *testing.T) {
	const digest = "sha256:1111111111111111111111111111111111111111111111111111111111111111"
	h := newHelm(t, 4)
	for part, object := range parts {
		kind, name, _ := strings.Cut(object, "/")
		set := func(value string) []string { return []string{"--set-json", part + "." + value} }
		args := slices.Concat(
			set(`podLabels={"team":"edge","app.kubernetes.io/name":"mine"}`), set(`podAnnotations={"note":"a"}`),
			set(`priorityClassName="low"`), set(`nodeSelector={"zone":"a"}`), set(`affinity={"podAffinity":{}}`),
			set(fmt.Sprintf("image={%q:%q}", "digest", digest)))
		if part != "uninstall" {
			args = append(args, set(`updateStrategy={"type":"RollingUpdate"}`)...)
			args = append(args, set(`serviceAccount={"annotations":{"role":"arn"}}`)...)
		}
		if kind == "Deployment" {
			const constraint = `{"maxSkew":1,"topologyKey":"zone","whenUnsatisfiable":"DoNotSchedule"}`
			args = append(args, set("topologySpreadConstraints=["+constraint+"]")...)
		}
		before := h.render(t, allParts...).get(t, kind, name)
		all := h.render(t, slices.Concat(allParts, args)...)
		o := all.get(t, kind, name)
		template := func(path ...string) any { return field(o, append([]string{"spec", "template"}, path...)...) }
		own, _ := field(before, "spec", "template", "metadata", "labels", "app.kubernetes.io/name").(string)
		for what, tc := range map[string]struct{ got, want any }{
			"label":         {template("metadata", "labels", "team"), "edge"},
			"own label":     {template("metadata", "labels", "app.kubernetes.io/name"), own},
			"annotation":    {template("metadata", "annotations", "note"), "a"},
			"PriorityClass": {template("spec", "priorityClassName"), "low"},
			"node selector": {template("spec", "nodeSelector", "zone"), "a"},
			"digest":        {strings.HasSuffix(container(o)["image"].(string), "@"+digest), true},
		} {
			if tc.got != tc.want {
				t.Errorf("%s: %s %v, want %v", part, what, tc.got, tc.want)
			}
		}
		if affinity, ok := template("spec", "affinity").(map[string]any); !ok || affinity["podAffinity"] == nil {
			t.Errorf("%s: affinity %v", part, affinity)
		}
		for _, own := range slices.Collect(maps.Keys(annotations(before))) {
			if annotations(o)[own] == nil {
				t.Errorf("%s: the values took the annotation %s away", part, own)
			}
		}
		if part == "uninstall" {
			continue
		}
		strategy := map[string]string{"Deployment": "strategy", "DaemonSet": "updateStrategy"}[kind]
		if got := field(o, "spec", strategy, "type"); got != "RollingUpdate" {
			t.Errorf("%s: strategy %v", part, got)
		}
		account, _ := template("spec", "serviceAccountName").(string)
		if got := all.get(t, "ServiceAccount", account).GetAnnotations()["role"]; got != "arn" {
			t.Errorf("%s: ServiceAccount %s has the annotation %q", part, account, got)
		}
		if kind == "Deployment" {
			spread := template("spec", "topologySpreadConstraints").([]any)[0].(map[string]any)
			if diff := cmp.Diff(field(o, "spec", "selector"), spread["labelSelector"]); diff != "" {
				t.Errorf("%s is spread among other pods than its own (-own +got):\n%s", part, diff)
			}
		}
	}
}

func annotations(o *unstructured.Unstructured) map[string]any {
	found, _ := field(o, "spec", "template", "metadata", "annotations").(map[string]any)
	return found
}

// `helm upgrade --reuse-values` has the values of a chart that knew nothing of what this one does.
func TestValuesOfAnOlderChart(t *testing.T) {
	h := newHelm(t, 4)
	var without []string
	for _, part := range []string{"scheduler", "controller", "kubecri", "uninstall"} {
		for _, value := range []string{
			"image", "podAnnotations", "podLabels", "serviceAccount", "updateStrategy", "topologySpreadConstraints",
			"affinity",
		} {
			without = append(without, "--set", part+"."+value+"=null")
		}
	}
	without = append(without, "--set", "ui=null,plugins=null,controller.ui.enabled=false")
	for _, part := range []string{"scheduler", "controller", "uninstall"} {
		without = append(without, "--set", part+".priorityClassName=null")
	}
	now, before := h.render(t), h.render(t, without...)
	for _, pod := range before.pods(t) {
		want := map[string]string{"kubecri": "system-node-critical", "uninstall-node": "system-node-critical",
			"kube-scheduler": "system-cluster-critical", "kubeslot-controller": "system-cluster-critical"}[pod.Name]
		if pod.Spec.PriorityClassName != want {
			t.Errorf("%s has PriorityClass %q, want %q", pod.Name, pod.Spec.PriorityClassName, want)
		}
	}
	if len(now) != len(before) {
		t.Errorf("%d objects, want %d", len(before), len(now))
	}
}

// kubecri's DaemonSet, the handlers', and what cleans up after them keep away from nodes that run none.
func TestPodsKeepAwayFromVirtualNodes(t *testing.T) {
	all := newHelm(t, 4).render(t, append([]string{"--set-json", `handlers={"udev":{}}`}, withPlugins...)...)
	want := fmt.Sprint(field(all.get(t, "DaemonSet", "kubecri"), "spec", "template", "spec", "affinity"))
	for _, label := range []string{"eks.amazonaws.com/compute-type", "virtual-kubelet", "NotIn"} {
		if !strings.Contains(want, label) {
			t.Errorf("kubecri's affinity %s says nothing of %s", want, label)
		}
	}
	for _, pod := range all.pods(t) {
		if pod.Spec.NodeSelector["kubernetes.io/os"] != "linux" {
			t.Errorf("%s may come on nodes with %v", pod.Name, pod.Spec.NodeSelector)
		}
		if pod.Name == "kube-scheduler" || pod.Name == "kubeslot-controller" {
			continue // those nodes have taints, or take no pod that no profile selects
		}
		if pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil {
			t.Errorf("%s has no node affinity", pod.Name)
		}
	}
}
