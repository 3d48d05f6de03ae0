package monitoring

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/kubeslot/kubeslot/deploy/monitoring"
	"github.com/kubeslot/kubeslot/test/cluster"
)

// rendered are the chart's objects with the values, by kind/name.
func rendered(t *testing.T, helm string, args ...string) map[string]unstructured.Unstructured {
	t.Helper()
	args = append([]string{"template", "kubeslot", root + "/deploy/helm/kubeslot", "--namespace", "kubeslot-system", "--set", "image.registry=x"}, args...)
	out, err := exec.CommandContext(t.Context(), helm, args...).Output()
	if err != nil {
		t.Fatalf("helm %v: %v\n%s", args, err, err.(*exec.ExitError).Stderr)
	}
	objects := map[string]unstructured.Unstructured{}
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(out), 4096); ; {
		var u unstructured.Unstructured
		if err := decoder.Decode(&u); err != nil {
			break
		}
		if u.GetKind() != "" {
			objects[u.GetKind()+"/"+u.GetName()] = u
		}
	}
	return objects
}

// The chart has what Prometheus and Grafana need where the operator's API is, and nothing of
// it elsewhere; kubecri is open to others only where it is read. Its rules are valid.
func TestChart(t *testing.T) {
	promtool := filepath.Join(built(t), "promtool")
	helm, err := cluster.BuildHelm(t.Context(), root, 4, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	const api = "--api-versions=monitoring.coreos.com/v1/ServiceMonitor"
	ours := func(objects map[string]unstructured.Unstructured) (found []string) {
		for _, name := range []string{"ServiceMonitor/kubeslot-scheduler", "ServiceMonitor/kubeslot-controller", "ServiceMonitor/kubecri", "Service/kubecri-metrics",
			"PrometheusRule/kubeslot", "ConfigMap/kubeslot-dashboard-fleet", "ConfigMap/kubeslot-dashboard-configuration",
			"ConfigMap/kubeslot-dashboard-node", "ConfigMap/kubeslot-dashboard-scheduler"} {
			if _, ok := objects[name]; ok {
				found = append(found, name)
			}
		}
		return found
	}
	open := func(objects map[string]unstructured.Unstructured) bool {
		text, _ := json.Marshal(objects["DaemonSet/kubecri"].Object)
		return bytes.Contains(text, []byte("--metrics-bind-address=:10349"))
	}
	for name, test := range map[string]struct {
		args []string
		want int
		open bool
	}{
		"without the operator": {want: 0},
		"with the operator":    {args: []string{api}, want: 7},
		"always":               {args: []string{"--set=monitoring.enabled=true"}, want: 7},
		"never": {args: []string{api, "--set=monitoring.enabled=false,monitoring.nodes=true"},
			want: 0},
		"nodes, no operator": {args: []string{"--set=monitoring.nodes=true"}, want: 0},
		"nodes":              {args: []string{api, "--set=monitoring.nodes=true"}, want: 9, open: true},
		"always, nodes": {args: []string{"--set=monitoring.enabled=true,monitoring.nodes=true"}, want: 9,
			open: true},
		"neither rules nor boards": {args: []string{api,
			"--set=monitoring.alerts.enabled=false,monitoring.dashboards.enabled=false"}, want: 2},
		"no scheduler": {args: []string{api, "--set=scheduler.enabled=false"}, want: 6},
	} {
		objects := rendered(t, helm, test.args...)
		if found := ours(objects); len(found) != test.want || open(objects) != test.open {
			t.Errorf("%s: %d objects (%s), kubecri open to others %t; want %d and %t", name, len(found), strings.Join(found, " "), open(objects), test.want, test.open)
		}
	}

	// Where there is to be no scheduler its absence is no alert, unless somebody says so.
	const without = "--set=scheduler.enabled=false,kubecri.mode=device-plugin"
	for _, test := range []struct {
		set  string
		want bool
	}{
		{"--set=scheduler.enabled=false", true}, {without, false},
		{without + ",monitoring.alerts.overrides.KubeslotSchedulerAbsent.enabled=true", true},
		{without + ",monitoring.alerts.overrides.KubeslotSchedulerAbsent.for=1h", false},
	} {
		text, err := json.Marshal(rendered(t, helm, api, test.set)["PrometheusRule/kubeslot"].Object)
		if err != nil {
			t.Fatal(err)
		}
		if got := bytes.Contains(text, []byte("KubeslotSchedulerAbsent")); got != test.want {
			t.Errorf("%s: KubeslotSchedulerAbsent is there: %t", test.set, got)
		}
	}

	objects := rendered(t, helm, api, "--set=monitoring.labels.release=kps", "--set=monitoring.alerts.runbooks=https://wiki/runbooks",
		`--set-json=monitoring.alerts.overrides={"KubeslotPodsWaiting":{"for":"30m","labels":{"severity":"info"}},"KubeslotNodeWithoutKubecri":{"enabled":false}}`)
	object := objects["PrometheusRule/kubeslot"]
	if object.GetLabels()["release"] != "kps" {
		t.Errorf("labels %v", object.GetLabels())
	}
	var rules monitoring.Rules
	text, err := json.Marshal(object.Object["spec"])
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &rules); err != nil {
		t.Fatal(err)
	}
	shipped, err := monitoring.ReadRules(folder)
	if err != nil {
		t.Fatal(err)
	}
	is := map[string]monitoring.Rule{}
	for _, rule := range rules.All() {
		is[rule.Alert] = rule
	}
	if _, there := is["KubeslotNodeWithoutKubecri"]; there || len(is) != len(shipped.All())-1 {
		t.Errorf("%d alerts, with the one that is off: %t", len(is), there)
	}
	for _, rule := range shipped.All() {
		got, ok := is[rule.Alert]
		if !ok {
			continue
		}
		want := rule
		if rule.Alert == "KubeslotPodsWaiting" {
			want.For, want.Labels = "30m", map[string]string{"severity": "info"}
		}
		url := "https://wiki/runbooks#" + strings.ToLower(rule.Alert)
		if got.Expr != want.Expr || got.For != want.For || got.Labels["severity"] != want.Labels["severity"] ||
			got.Annotations["description"] != want.Annotations["description"] || got.Annotations["runbook_url"] != url {
			t.Errorf("%s is\n%+v, want\n%+v with runbook_url %s", rule.Alert, got, want, url)
		}
	}
	path := filepath.Join(t.TempDir(), "rules.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), promtool, "check", "rules", path).CombinedOutput(); err != nil {
		t.Errorf("promtool: %v\n%s", err, out)
	}
	for _, d := range monitoring.Dashboards() {
		data, _, err := unstructured.NestedString(objects["ConfigMap/kubeslot-dashboard-"+d.Name].Object, "data", d.Name+".json")
		want, _ := d.JSON()
		if err != nil || strings.TrimSpace(data) != strings.TrimSpace(string(want)) {
			t.Errorf("the ConfigMap of dashboard %s has other JSON (%v)", d.Name, err)
		}
	}
}
