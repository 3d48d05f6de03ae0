package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// write prints the results as a table in Markdown, a column an arm.
func write(out io.Writer, o *options, results []result) error {
	var text strings.Builder
	fmt.Fprintf(&text, "| %d Instances on %d nodes", o.instances, o.nodes)
	for _, r := range results {
		text.WriteString(" | " + r.arm.name)
	}
	text.WriteString(" |\n|---" + strings.Repeat("|---", len(results)) + "|\n")
	row := func(name string, of func(r result) string) {
		text.WriteString("| " + name)
		for _, r := range results {
			text.WriteString(" | " + of(r))
		}
		text.WriteString(" |\n")
	}
	row("brokers", func(r result) string { return fmt.Sprint(r.arm.brokers(o.instances)) })
	row("from the Configuration until all are Ready, s", func(r result) string { return fmt.Sprintf("%.1f", r.allReady.Seconds()) })
	row("… and its status says so, s", func(r result) string { return fmt.Sprintf("%.1f", r.made.took.Seconds()) })
	row("writes of the controller", func(r result) string { return r.made.writes.show() })
	row("CPU of the controller, s; of API server and etcd, s", func(r result) string { return r.made.cpu() })
	row("memory of the controller without devices, MiB resident (of it heap in use)", func(r result) string { return r.empty.show() })
	row("memory with all brokers", func(r result) string { return r.full.show() })
	row(fmt.Sprintf("idle for %s: writes; CPU of the controller, %% of a core", o.idle), func(r result) string { return r.idle.share() })
	row("restart of the controller: writes; its CPU, s", func(r result) string {
		return fmt.Sprintf("%d; %.2f", r.restart.writes.sum(), r.restart.controller)
	})
	row("another image, until all are replaced, s", func(r result) string { return fmt.Sprintf("%.1f", r.rollout.took.Seconds()) })
	row("writes", func(r result) string { return r.rollout.writes.show() })
	row("CPU, s", func(r result) string { return r.rollout.cpu() })
	row("an image that does not work: brokers replaced until the rollout stops", func(r result) string { return fmt.Sprint(r.replaced) })
	row(fmt.Sprintf("… watched for %s: writes; CPU of the controller, %% of a core", o.idle), func(r result) string { return r.stopped.share() })
	row("the image mended, until all are replaced, s", func(r result) string { return fmt.Sprintf("%.1f", r.mended.took.Seconds()) })
	row("brokerSpec taken away, until no pod is left, s", func(r result) string { return fmt.Sprintf("%.1f", r.gone.took.Seconds()) })
	row("writes", func(r result) string { return r.gone.writes.show() })
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

func (c cost) cpu() string { return fmt.Sprintf("%.1f; %.1f", c.controller, c.api) }

func (c cost) share() string {
	return fmt.Sprintf("%d; %.2f", c.writes.sum(), 100*c.controller/c.took.Seconds())
}

func (m memory) show() string { return fmt.Sprintf("%.0f (%.0f)", m.anonymous, m.heap) }
