package monitoring

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/kubeslot/kubeslot/deploy/monitoring"
	"github.com/kubeslot/kubeslot/test/cluster"
)

const (
	root   = "../.."
	folder = root + "/deploy/monitoring"
)

// built returns the folder of promtool and prometheus, which takes minutes the first time.
func built(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("builds Prometheus: make test-all")
	}
	if os.Getenv("KUBESLOT_E2E") == "" {
		t.Skip("builds Prometheus: run `make test-e2e` as root")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 25*time.Minute)
	defer cancel()
	dir, err := cluster.BuildPrometheus(ctx, root, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// choose replaces the variables of dashboards by all of their values.
var choose = strings.NewReplacer("$cluster", ".*", "$configuration", ".*", "$node", ".*", "$__rate_interval", "30s", "$__range", "10m")

// What each panel asks is PromQL.
func TestPanelsAskPromQL(t *testing.T) {
	promtool := filepath.Join(built(t), "promtool")
	var records []any
	for _, d := range monitoring.Dashboards() {
		for _, row := range d.Rows {
			for _, panel := range row.Panels {
				for _, query := range panel.Queries {
					records = append(records, map[string]any{"record": fmt.Sprint("panel:", len(records)), "expr": choose.Replace(monitoring.InCluster(query.Expr))})
				}
			}
		}
	}
	text, err := json.Marshal(map[string]any{"groups": []any{map[string]any{"name": "panels", "rules": records}}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "panels.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), promtool, "check", "rules", path).CombinedOutput(); err != nil {
		t.Errorf("promtool: %v\n%s", err, out)
	}
	if len(records) < 60 {
		t.Errorf("there are only %d queries", len(records))
	}
}

// Each rule is valid, and promtool's test files have it fire and not fire.
func TestRules(t *testing.T) {
	promtool := filepath.Join(built(t), "promtool")
	rules, err := monitoring.ReadRules(folder)
	if err != nil {
		t.Fatal(err)
	}
	tests, err := filepath.Glob(folder + "/tests/*.yaml")
	if err != nil || len(tests) == 0 {
		t.Fatal("there are no tests of the rules", err)
	}
	for _, args := range [][]string{{"check", "rules", "--lint=all", folder + "/rules.yaml"}, append([]string{"test", "rules"}, tests...)} {
		if out, err := exec.CommandContext(t.Context(), promtool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
	all := ""
	for _, path := range tests {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all += string(text)
	}
	for _, rule := range rules.All() {
		if !regexp.MustCompile(`labels: 'ALERTS\{alertname="` + rule.Alert + `",alertstate="firing"`).MatchString(all) {
			t.Errorf("no test has %s fire", rule.Alert)
		}
	}
}
