package main

import (
	"fmt"
	"go/ast"
	"regexp"
	"slices"
	"strings"

	"github.com/kubeslot/kubeslot/deploy/monitoring"
)

type metric struct {
	name, kind, help string
	labels           []string
	family           string // what of Kubeslot serves it
}

// makers are the functions that make metrics, by the type of what they make. Descriptions are of what is
// collected when it is asked for, which is a counter if its name ends with _total.
var makers = regexp.MustCompile(`^New(Counter|Gauge|Histogram|Desc)(Vec)?$`)

// metrics lists what the code registers.
func metrics(t *tree, p *page) error {
	rules, err := monitoring.ReadRules(t.root + "/deploy/monitoring")
	if err != nil {
		return err
	}
	alerts := map[string][]string{} // by metric
	for _, rule := range rules.All() {
		for _, name := range monitoring.Metrics(rule.Expr) {
			name = regexp.MustCompile(`_(bucket|count|sum)$`).ReplaceAllString(name, "")
			if link := "[" + rule.Alert + "](../runbooks.md#" + strings.ToLower(rule.Alert) + ")"; !slices.Contains(alerts[name], link) {
				alerts[name] = append(alerts[name], link)
			}
		}
	}
	p.begin("Metrics", "what the Go code registers, and deploy/monitoring/rules.yaml",
		"What Kubeslot's programs serve on `/metrics` beside the metrics of the libraries that they are made with. "+
			"[Monitoring](../monitoring.md) says who may read them where, what reasons mean, and how to add them up.")
	for _, family := range []struct{ folder, title string }{
		{"kube-scheduler", "Scheduler"}, {"controller", "Controller"}, {"kubecri", "kubecri, of each node"}} {
		found, err := metricsIn(t, family.folder)
		if err != nil {
			return err
		}
		p.heading(2, family.title)
		var rows [][]string
		for _, m := range found {
			rows = append(
				rows,
				[]string{
					code(m.name),
					m.kind,
					strings.Join(m.labels, ", "),
					plain(m.help),
					strings.Join(alerts[m.name], ", "),
				},
			)
			delete(alerts, m.name)
		}
		p.table([]string{"metric", "type", "labels", "meaning", "alerts"}, rows)
	}
	for name := range alerts {
		if regexp.MustCompile(`^(kubeslot|kubecri|akri)_`).MatchString(name) {
			return fmt.Errorf("alerts use %s, which no code registers", name)
		}
	}
	return nil
}

func metricsIn(t *tree, folder string) ([]metric, error) {
	var found []metric
	var err error
	add := func(m metric, ok bool, at ast.Node) {
		if !ok || m.name == "" || m.help == "" {
			err = fmt.Errorf("%s: a metric whose name, help or labels are not constant", t.at(at))
		}
		found = append(found, m)
	}
	helpers := map[string]metric{} // functions of a package that make one of a name and a help
	t.each(folder, func(p *goPackage, n ast.Node) {
		if f, ok := n.(*ast.FuncDecl); ok && f.Body != nil && len(f.Type.Params.List) > 0 {
			ast.Inspect(f.Body, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if m, isMetric, _ := t.metric(call); ok && isMetric && m.name == "" {
					helpers[p.path+"."+f.Name.Name] = m
				}
				return true
			})
		}
	})
	t.each(folder, func(p *goPackage, n ast.Node) {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return
		}
		if m, isMetric, constant := t.metric(call); isMetric && m.name != "" {
			add(m, constant, call)
		} else if helper, is := helpers[p.path+"."+method(call)]; is && len(call.Args) == 2 {
			name, ok := t.constant(call.Args[0])
			help, ok2 := t.constant(call.Args[1])
			helper.name, helper.help = helper.family+name, help
			add(helper, ok && ok2, call)
		}
	})
	slices.SortFunc(found, func(a, b metric) int { return strings.Compare(a.name, b.name) })
	return found, err
}

// metric is what a call makes, if that is a metric; its name is empty, and family what begins it, if it is
// not constant.
func (t *tree) metric(call *ast.CallExpr) (m metric, isMetric, constant bool) {
	if call == nil {
		return m, false, false
	}
	maker := makers.FindStringSubmatch(method(call))
	if maker == nil || len(call.Args) == 0 {
		return m, false, false
	}
	m.kind = strings.ToLower(maker[1])
	constant = true
	if m.kind == "desc" {
		m.kind = "gauge"
		m.name, _ = t.constant(call.Args[0])
		if strings.HasSuffix(m.name, "_total") {
			m.kind = "counter"
		}
		m.help, _ = t.constant(call.Args[1])
		m.labels, constant = t.list(call.Args[2])
		return m, true, constant
	}
	options := fields(call.Args[0])
	for _, name := range []string{"Namespace", "Subsystem"} {
		if value, there := options[name]; there {
			text, ok := t.constant(value)
			m.family, constant = m.family+text+"_", constant && ok
		}
	}
	if options["Name"] != nil {
		if name, ok := t.constant(options["Name"]); ok {
			m.name = m.family + name
		}
	}
	if options["Help"] != nil {
		m.help, _ = t.constant(options["Help"])
	}
	if maker[2] != "" {
		labels, ok := t.list(call.Args[1])
		m.labels, constant = labels, constant && ok
	}
	return m, len(options) > 0, constant
}
