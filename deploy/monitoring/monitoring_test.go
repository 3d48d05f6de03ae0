package monitoring

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

func TestGeneratedFilesAreUpToDate(t *testing.T) {
	files, err := Generated(".")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what is made now (%v): run make generate", name, err)
		}
	}
	shipped, err := filepath.Glob("dashboards/*.json")
	if err != nil {
		t.Fatal(err)
	}
	kustomization, err := os.ReadFile("kustomization.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range shipped {
		if files[path] == nil {
			t.Errorf("%s is nobody's: delete it", path)
		}
		if !bytes.Contains(kustomization, []byte("- "+path+"\n")) {
			t.Errorf("kustomization.yaml lacks %s", path)
		}
	}
}

// The operator's object has the rules, all and as they are.
func TestPrometheusRule(t *testing.T) {
	text, err := os.ReadFile("prometheusrule.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var object, plain map[string]any
	if err := yaml.Unmarshal(text, &object); err != nil {
		t.Fatal(err)
	}
	rules, err := os.ReadFile(RulesFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(rules, &plain); err != nil {
		t.Fatal(err)
	}
	is, _ := json.Marshal(object["spec"])
	want, _ := json.Marshal(plain)
	if !bytes.Equal(is, want) {
		t.Errorf("spec %.200s, want %.200s", is, want)
	}
}

// Each alert says what it means, how bad it is, and where what to do about it is.
func TestAlertsAreDocumented(t *testing.T) {
	rules, err := ReadRules(".")
	if err != nil {
		t.Fatal(err)
	}
	runbooks, err := os.ReadFile("../../docs/runbooks.md")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/monitoring.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, rule := range rules.All() {
		if seen[rule.Alert] {
			t.Errorf("%s is there twice: the chart's values mean one", rule.Alert)
		}
		seen[rule.Alert] = true
		if !slices.Contains([]string{"critical", "warning", "info"}, rule.Labels["severity"]) {
			t.Errorf("%s has severity %q", rule.Alert, rule.Labels["severity"])
		}
		if rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" {
			t.Errorf("%s lacks a summary or a description", rule.Alert)
		}
		if want := "/docs/runbooks.md#" + strings.ToLower(rule.Alert); !strings.HasSuffix(rule.Annotations["runbook_url"], want) {
			t.Errorf("%s has runbook_url %q, want …%s", rule.Alert, rule.Annotations["runbook_url"], want)
		}
		if !bytes.Contains(runbooks, []byte("\n### "+rule.Alert+"\n")) {
			t.Errorf("docs/runbooks.md lacks %s", rule.Alert)
		}
		after := rule.For
		if after == "" {
			after = "at once"
		}
		row := "| [" + rule.Alert + "](runbooks.md#" + strings.ToLower(rule.Alert) + ") | " + rule.Labels["severity"] + " | " + after + " | " + rule.Annotations["summary"] + " |\n"
		if !bytes.Contains(page, []byte(row)) {
			t.Errorf("docs/monitoring.md lacks the line %s", row)
		}
	}
	if want := fmt.Sprintf("%d alerts with", len(seen)); !bytes.Contains(page, []byte(want)) {
		t.Errorf("docs/monitoring.md does not say %q", want)
	}
	for _, m := range regexp.MustCompile(`(?m)^### (Kubeslot\w+)$`).FindAllSubmatch(runbooks, -1) {
		if !seen[string(m[1])] {
			t.Errorf("docs/runbooks.md has %s, which is no alert", m[1])
		}
	}
}

// Metrics of ours that dashboards and rules name are in the docs, with the names of their
// labels.
func TestMetricsAreDocumented(t *testing.T) {
	docs := ""
	for _, name := range []string{"monitoring", "scheduler", "kubecri", "discovery", "brokers"} {
		text, err := os.ReadFile("../../docs/" + name + ".md")
		if err != nil {
			t.Fatal(err)
		}
		docs += string(text)
	}
	var exprs []string
	rules, err := ReadRules(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range rules.All() {
		exprs = append(exprs, rule.Expr)
	}
	for _, d := range Dashboards() {
		for _, row := range d.Rows {
			for _, panel := range row.Panels {
				for _, query := range panel.Queries {
					exprs = append(exprs, query.Expr)
				}
			}
		}
	}
	checked := 0
	for _, expr := range exprs {
		for _, name := range Metrics(expr) {
			name = strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_count")
			if !regexp.MustCompile(`^(kubeslot|kubecri|akri)_`).MatchString(name) {
				continue
			}
			checked++
			short := strings.TrimPrefix(name, "kubecri_")
			if i := strings.LastIndex(name, "brokers_"); i > 0 {
				short = name[i+len("brokers"):] // `…_deleted_total`
			}
			if !strings.Contains(docs, "`"+name) && !strings.Contains(docs, "`"+short) && !strings.Contains(docs, "`…"+short) {
				t.Errorf("no page of docs/ has %s", name)
			}
		}
	}
	if checked < 100 {
		t.Errorf("only %d uses of metrics were found", checked)
	}
}

func TestInCluster(t *testing.T) {
	for expr, want := range map[string]string{
		`up`:                                   `up{cluster=~"$cluster"}`,
		`sum by (up) (up{job="kubecri"})`:      `sum by (up) (up{cluster=~"$cluster", job="kubecri"})`,
		`rate(kubecri_a_total[5m])`:            `rate(kubecri_a_total{cluster=~"$cluster"}[5m])`,
		`kubecri_a / on (kubecri_b) akri_c`:    `kubecri_a{cluster=~"$cluster"} / on (kubecri_b) akri_c{cluster=~"$cluster"}`,
		`kubecri_a{kubecri_b="akri_c"} > 0`:    `kubecri_a{cluster=~"$cluster", kubecri_b="akri_c"} > 0`,
		`count(ALERTS{alertname=~"Kubeslot"})`: `count(ALERTS{cluster=~"$cluster", alertname=~"Kubeslot"})`,
	} {
		if got := InCluster(expr); got != want {
			t.Errorf("%s: %s, want %s", expr, got, want)
		}
	}
}

// What Grafana needs of a dashboard: an id of its own for each panel, panels that do not
// overlap, and a unique uid.
func TestDashboards(t *testing.T) {
	uids := map[string]bool{}
	for _, d := range Dashboards() {
		text, err := d.JSON()
		if err != nil {
			t.Fatal(err)
		}
		var board struct {
			UID    string
			Panels []struct {
				ID      int
				Type    string
				GridPos struct{ X, Y, W, H int }
				Targets []struct{ Expr, RefID string }
			}
		}
		if err := json.Unmarshal(text, &board); err != nil {
			t.Fatal(err)
		}
		if uids[board.UID] || len(board.UID) > 40 {
			t.Errorf("uid %q", board.UID)
		}
		uids[board.UID] = true
		ids, cells := map[int]bool{}, map[[2]int]int{}
		for _, p := range board.Panels {
			if ids[p.ID] {
				t.Errorf("%s: two panels have id %d", d.Name, p.ID)
			}
			ids[p.ID] = true
			if p.GridPos.X+p.GridPos.W > 24 || p.GridPos.W < 1 || p.GridPos.H < 1 {
				t.Errorf("%s: panel %d is at %+v", d.Name, p.ID, p.GridPos)
			}
			for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
				for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
					if other, taken := cells[[2]int{x, y}]; taken {
						t.Fatalf("%s: panels %d and %d overlap", d.Name, other, p.ID)
					}
					cells[[2]int{x, y}] = p.ID
				}
			}
			if p.Type != "row" && len(p.Targets) == 0 {
				t.Errorf("%s: panel %d asks nothing", d.Name, p.ID)
			}
		}
	}
}
