package monitoring

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

// RulesFile is the file of the alert rules, as Prometheus reads it.
const RulesFile = "rules.yaml"

// Rules are those of RulesFile, as far as they matter here.
type Rules struct {
	Groups []struct {
		Name  string `json:"name"`
		Rules []Rule `json:"rules"`
	} `json:"groups"`
}

// Rule is an alert.
type Rule struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// All returns the alerts of all groups.
func (r *Rules) All() []Rule {
	var all []Rule
	for _, group := range r.Groups {
		all = append(all, group.Rules...)
	}
	return all
}

// ReadRules reads the rules of a folder like this package's.
func ReadRules(folder string) (*Rules, error) {
	text, err := os.ReadFile(filepath.Join(folder, RulesFile))
	if err != nil {
		return nil, err
	}
	rules := &Rules{}
	if err := yaml.UnmarshalStrict(text, rules); err != nil {
		return nil, fmt.Errorf("%s: %w", RulesFile, err)
	}
	return rules, nil
}

// Generated returns the files that are made from others, by their path in the folder, which
// has the others.
func Generated(folder string) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, d := range Dashboards() {
		text, err := d.JSON()
		if err != nil {
			return nil, err
		}
		files[filepath.Join("dashboards", d.Name+".json")] = text
	}
	rules, err := os.ReadFile(filepath.Join(folder, RulesFile))
	if err != nil {
		return nil, err
	}
	files["prometheusrule.yaml"] = prometheusRule(rules)
	return files, nil
}

// prometheusRule is the object of the Prometheus Operator.
func prometheusRule(rules []byte) []byte {
	out := []byte(`# Made from rules.yaml by make generate.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: kubeslot
  labels: {app.kubernetes.io/part-of: kubeslot}
spec:
`)
	_, groups, _ := bytes.Cut(rules, []byte("\ngroups:\n"))
	out = append(out, "  groups:\n"...)
	for line := range bytes.Lines(groups) {
		out = append(out, "  "...)
		out = append(out, line...)
	}
	return out
}
