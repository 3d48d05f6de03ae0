package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// cell is a figure: its text, and what grows with the number of Instances.
type cell struct {
	text  string
	grows float64 // 0: it has no growth
}

// figure is a cell of one number.
func figure(format string, of float64) cell { return cell{fmt.Sprintf(format, of), of} }

// writesOf is a cell of writes.
func writesOf(w writes) cell { return cell{w.show(), float64(w.sum())} }

// row is what is said of each result.
type row struct {
	name string
	of   func(r result) cell
}

func seconds(c cost) cell { return figure("%.1f", c.took.Seconds()) }

// rows are what every result has.
func rows(o *options) []row {
	idle := fmt.Sprintf("idle for %s: writes; CPU of the controller, %% of a core", o.idle)
	return []row{
		{"brokers", func(r result) cell { return figure("%.0f", float64(r.arm.brokers(r.instances))) }},
		{"from the Configuration until all are Ready, s", func(r result) cell {
			return figure("%.1f", r.allReady.Seconds())
		}},
		{"… and its status says so, s", func(r result) cell { return seconds(r.made) }},
		{"writes of the controller", func(r result) cell { return writesOf(r.made.writes) }},
		{"CPU of the controller, s; of API server and etcd, s", func(r result) cell { return r.made.cpu() }},
		{"memory of the controller without devices, MiB resident (of it heap in use)", func(r result) cell {
			return cell{text: r.empty.show()}
		}},
		{"memory with all brokers", func(r result) cell { return cell{r.full.show(), r.full.heap - r.empty.heap} }},
		{"… of it heap for an Instance, KiB", func(r result) cell {
			return cell{text: fmt.Sprintf("%.1f", (r.full.heap-r.empty.heap)*1024/float64(r.instances))}
		}},
		{idle, func(r result) cell { return cell{text: r.idle.share()} }},
		{"start with all brokers there, until all are looked at, s", func(r result) cell { return seconds(r.restart) }},
		{"writes", func(r result) cell { return writesOf(r.restart.writes) }},
		{"CPU, s", func(r result) cell { return figure("%.1f", r.restart.controller) }},
		{"start after a tenth of the devices went and a tenth changed, until it is right, s", func(r result) cell {
			return seconds(r.away)
		}},
		{"writes", func(r result) cell { return writesOf(r.away.writes) }},
		{"CPU, s", func(r result) cell { return figure("%.1f", r.away.controller) }},
	}
}

// rolloutRows are what results have whose roll-outs were measured.
func rolloutRows(o *options) []row {
	stopped := fmt.Sprintf("… watched for %s: writes; CPU of the controller, %% of a core", o.idle)
	return []row{
		{"another image, until all are replaced, s", func(r result) cell { return seconds(r.rollout) }},
		{"writes", func(r result) cell { return writesOf(r.rollout.writes) }},
		{"CPU, s", func(r result) cell { return r.rollout.cpu() }},
		{"an image that does not work: brokers replaced until the roll-out stops", func(r result) cell {
			return cell{text: fmt.Sprint(r.replaced)}
		}},
		{stopped, func(r result) cell { return cell{text: r.stopped.share()} }},
		{"the image mended, until all are replaced, s", func(r result) cell { return seconds(r.mended) }},
		{"brokerSpec taken away, until no pod is left, s", func(r result) cell { return seconds(r.gone) }},
		{"writes", func(r result) cell { return writesOf(r.gone.writes) }},
	}
}

// write prints the results of one arm as a table in Markdown: a column for each size, and one for what
// has grown from the smaller size.
func write(out io.Writer, o *options, results []result) error {
	if len(results) == 0 {
		return nil
	}
	var text strings.Builder
	fmt.Fprintf(&text, "| Instances on %d nodes: %s", o.nodes, results[0].arm.name)
	columns := 1
	for i, r := range results {
		fmt.Fprintf(&text, " | %d", r.instances)
		if columns++; i > 0 {
			text.WriteString(" | growth")
			columns++
		}
	}
	text.WriteString(" |\n" + strings.Repeat("|---", columns) + "|\n")
	line := func(row row, has func(r result) bool) {
		text.WriteString("| " + row.name)
		before := cell{}
		for i, r := range results {
			is, growth := cell{text: "-"}, "-"
			if has(r) {
				is = row.of(r)
			}
			if before.grows > 0 && is.grows > 0 {
				growth = fmt.Sprintf("%.1f×", is.grows/before.grows)
			}
			text.WriteString(" | " + is.text)
			if i > 0 {
				text.WriteString(" | " + growth)
			}
			before = is
		}
		text.WriteString(" |\n")
	}
	for _, row := range rows(o) {
		line(row, func(result) bool { return true })
	}
	for _, row := range rolloutRows(o) {
		line(row, func(r result) bool { return r.rolledOut })
	}
	_, err := io.WriteString(out, text.String())
	return err
}

// show lists writes, the most first: "2003: 1001 create services, 1000 create pods".
func (w writes) show() string {
	if len(w) == 0 {
		return "0"
	}
	whats := slices.SortedFunc(maps.Keys(w), func(a, b string) int { return cmp.Or(cmp.Compare(w[b], w[a]), cmp.Compare(a, b)) })
	for i, what := range whats {
		whats[i] = fmt.Sprintf("%d %s", w[what], what)
	}
	return fmt.Sprintf("%d: %s", w.sum(), strings.Join(whats, ", "))
}

func (c cost) cpu() cell { return cell{fmt.Sprintf("%.1f; %.1f", c.controller, c.api), c.controller} }

func (c cost) share() string {
	return fmt.Sprintf("%d; %.2f", c.writes.sum(), 100*c.controller/c.took.Seconds())
}

func (m memory) show() string { return fmt.Sprintf("%.0f (%.0f)", m.anonymous, m.heap) }
