package monitoring

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
)

// Dashboard is one of Grafana's, in the words of this package.
type Dashboard struct {
	// Name is the file's, without .json, and with "kubeslot-" before it the uid.
	Name, Title, Description string
	// Variable is a label whose values can be chosen, nil for none.
	Variable *Variable
	Rows     []Row
}

// Variable has the values of a metric's label.
type Variable struct {
	Name, Metric string
}

// Row is a line of panels under a title, which share its width.
type Row struct {
	Title  string
	Panels []Panel
}

// Panel shows queries.
type Panel struct {
	Title, Description string
	Kind               Kind
	Unit               Unit
	Queries            []Query
	// Stack adds up the series of a Graph.
	Stack bool
	// Alarm colours a Number that is at least this, 0 for none.
	Alarm float64
}

// Kind is how a panel shows its queries.
type Kind string

// Kinds of panels, as Grafana calls them.
const (
	Graph  Kind = "timeseries"
	Number Kind = "stat"
	Table  Kind = "table"
)

// Unit is that of a panel's values.
type Unit string

// Units, as Grafana calls them.
const (
	Count     Unit = "short"
	Seconds   Unit = "s"
	PerSecond Unit = "ops"
	Bytes     Unit = "bytes"
	Cores     Unit = "none"
)

// Query is PromQL. Legend names each series, for example by {{configuration}}; of a Table,
// it is the column.
type Query struct {
	Expr, Legend string
	// Quiet is set where there are series only when something is wrong, or in use.
	Quiet bool
}

const (
	width       = 24
	rowHeight   = 8
	statHeight  = 4
	schema      = 39
	datasource  = "${datasource}"
	clusterExpr = `cluster=~"$cluster"`
)

// selector finds the metrics of an expression, with the brace that follows some.
var selector = regexp.MustCompile(`\b((?:kubeslot|kubecri|akri|scheduler|leader_election|workqueue|controller_runtime|process)_[a-z0-9_]+|up|ALERTS)\b(\{)?`)

// labels finds the parts of an expression where names are labels, not metrics.
var labels = regexp.MustCompile(`\b(?:by|on|ignoring|without|group_left|group_right)\s*\([^)]*\)|\{[^}]*\}`)

// InCluster narrows the metrics of an expression to the chosen cluster. Where metrics have
// no label "cluster", that is all of them.
func InCluster(expr string) string {
	return eachMetric(expr, func(name string, braces bool) string {
		if braces {
			return name + "{" + clusterExpr + ", "
		}
		return name + "{" + clusterExpr + "}"
	})
}

// Metrics lists the metrics of an expression, each time that it is named.
func Metrics(expr string) []string {
	var names []string
	eachMetric(expr, func(name string, braces bool) string {
		names = append(names, name)
		return name
	})
	return names
}

func eachMetric(expr string, replace func(name string, braces bool) string) string {
	out, last := "", 0
	for _, m := range selector.FindAllStringSubmatchIndex(expr, -1) {
		if inside(m[0], labels.FindAllStringIndex(expr, -1)) {
			continue
		}
		out += expr[last:m[2]] + replace(expr[m[2]:m[3]], m[4] >= 0)
		last = m[1]
	}
	return out + expr[last:]
}

func inside(at int, spans [][]int) bool {
	return slices.ContainsFunc(spans, func(s []int) bool { return s[0] < at && at < s[1] })
}

// JSON is the dashboard as Grafana reads it.
func (d *Dashboard) JSON() ([]byte, error) {
	var panels []any
	y, id := 0, 0
	for _, row := range d.Rows {
		id++
		panels = append(panels, map[string]any{"id": id, "type": "row", "title": row.Title, "collapsed": false, "panels": []any{},
			"gridPos": map[string]int{"x": 0, "y": y, "w": width, "h": 1}})
		y++
		height := statHeight
		for _, p := range row.Panels {
			if p.Kind != Number {
				height = rowHeight
			}
		}
		each := width / len(row.Panels)
		for i, p := range row.Panels {
			id++
			panels = append(panels, p.json(id, i*each, y, each, height))
		}
		y += height
	}
	text, err := json.MarshalIndent(map[string]any{
		"uid": "kubeslot-" + d.Name, "title": d.Title, "description": d.Description, "tags": []string{"kubeslot"},
		"schemaVersion": schema, "version": 1, "editable": true, "graphTooltip": 1, "timezone": "browser", "refresh": "30s",
		"time": map[string]string{"from": "now-3h", "to": "now"},
		"links": []any{map[string]any{"title": "Kubeslot", "type": "dashboards", "tags": []string{"kubeslot"}, "asDropdown": true,
			"includeVars": true, "keepTime": true, "icon": "external link", "targetBlank": false, "tooltip": "", "url": ""}},
		"templating":  map[string]any{"list": d.variables()},
		"annotations": map[string]any{"list": []any{}},
		"panels":      panels,
	}, "", " ")
	if err != nil {
		return nil, fmt.Errorf("dashboard %s: %w", d.Name, err)
	}
	return append(text, '\n'), nil
}

func (d *Dashboard) variables() []any {
	all := []any{
		map[string]any{"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "hide": 0, "refresh": 1, "regex": "", "multi": false},
		d.variable(Variable{"cluster", "kubeslot_scheduler_ignored"}, "cluster"),
	}
	if d.Variable != nil {
		all = append(all, d.variable(*d.Variable, d.Variable.Name))
	}
	return all
}

// variable has all values chosen at first. Of "cluster" all includes metrics without it.
func (d *Dashboard) variable(v Variable, label string) any {
	query := fmt.Sprintf("label_values(%s, %s)", v.Metric, v.Name)
	return map[string]any{"name": v.Name, "label": label, "type": "query", "datasource": source(), "query": map[string]any{"query": query, "refId": "var"},
		"definition": query, "refresh": 2, "sort": 1, "multi": true, "includeAll": true, "allValue": ".*", "hide": 0,
		"current": map[string]any{"text": "All", "value": "$__all"}}
}

func source() map[string]string { return map[string]string{"type": "prometheus", "uid": datasource} }

func (p *Panel) json(id, x, y, w, h int) any {
	var targets []any
	for i, q := range p.Queries {
		target := map[string]any{"refId": string(rune('A' + i)), "datasource": source(), "expr": InCluster(q.Expr), "legendFormat": q.Legend, "editorMode": "code"}
		if p.Kind == Graph {
			target["range"] = true
		} else {
			target["instant"] = true
		}
		if p.Kind == Table {
			target["format"] = "table"
		}
		targets = append(targets, target)
	}
	steps := []any{map[string]any{"color": "green", "value": nil}}
	if p.Alarm > 0 {
		steps = append(steps, map[string]any{"color": "red", "value": p.Alarm})
	}
	defaults := map[string]any{"unit": string(p.Unit), "thresholds": map[string]any{"mode": "absolute", "steps": steps}, "min": 0}
	panel := map[string]any{
		"id": id, "type": string(p.Kind), "title": p.Title, "description": p.Description, "datasource": source(),
		"gridPos": map[string]int{"x": x, "y": y, "w": w, "h": h}, "targets": targets,
	}
	switch p.Kind {
	case Graph:
		custom := map[string]any{"lineWidth": 1, "fillOpacity": 10, "showPoints": "never", "spanNulls": false}
		if p.Stack {
			custom["fillOpacity"], custom["stacking"] = 40, map[string]any{"mode": "normal", "group": "A"}
		}
		defaults["custom"] = custom
		panel["options"] = map[string]any{"legend": map[string]any{"displayMode": "table", "placement": "bottom", "calcs": []string{"lastNotNull", "max"}},
			"tooltip": map[string]any{"mode": "multi", "sort": "desc"}}
	case Number:
		panel["options"] = map[string]any{"colorMode": "value", "graphMode": "area", "reduceOptions": map[string]any{"calcs": []string{"lastNotNull"}, "fields": "", "values": false}}
	case Table:
		rename := map[string]string{}
		for i, q := range p.Queries {
			rename[fmt.Sprintf("Value #%c", 'A'+i)] = q.Legend
		}
		panel["transformations"] = []any{
			map[string]any{"id": "merge", "options": map[string]any{}},
			map[string]any{"id": "organize", "options": map[string]any{"excludeByName": map[string]bool{"Time": true}, "renameByName": rename, "indexByName": map[string]int{}}},
		}
		panel["options"] = map[string]any{"showHeader": true, "cellHeight": "sm"}
	}
	panel["fieldConfig"] = map[string]any{"defaults": defaults, "overrides": []any{}}
	return panel
}
