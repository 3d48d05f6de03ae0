package main

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

// write prints the results as a table in Markdown: the handlers in kubecri, and as
// processes of their own.
func write(out io.Writer, o *options, results []result) error {
	var text strings.Builder
	fmt.Fprintf(&text, "| %d devices of %d Configurations on one node | handlers in kubecri | as processes |\n|---|---|---|\n", o.devices, o.configurations)
	row := func(name string, of func(result) string) {
		fmt.Fprintf(&text, "| %s", name)
		for _, r := range results {
			fmt.Fprintf(&text, " | %s", of(r))
		}
		text.WriteString(" |\n")
	}
	row("Configurations created one after the other within, s", func(r result) string { return seconds(r.created) })
	row("the scheduler can give all devices after, s", func(r result) string { return seconds(r.until) })
	row("writes of kubecri", func(r result) string { return r.load.list(kubecri) })
	row("writes of the controller", func(r result) string { return r.load.list(controller) })
	row("memory of kubecri without devices, MiB (of it not pages of files)", func(r result) string { return r.empty.memory() })
	row("memory of kubecri with all", func(r result) string { return r.full.memory() })
	row("memory of the handlers' processes", func(r result) string {
		if r.handlers == (usage{}) {
			return "–"
		}
		return r.handlers.memory()
	})
	row(fmt.Sprintf("idle for %s: writes", o.idle), func(r result) string {
		return fmt.Sprint(r.idleWrites.of(kubecri) + r.idleWrites.of(controller))
	})
	row("idle: kubecri without devices, % of a core", func(r result) string { return percent(r.emptyIdle) })
	row("idle: kubecri with all", func(r result) string { return percent(r.idle) })
	row("idle: the difference, and the handlers' processes", func(r result) string { return percent(r.idle - r.emptyIdle + r.handlersIdle) })
	row("restart of kubecri: writes", func(r result) string {
		return fmt.Sprint(r.restart.of(kubecri) + r.restart.of(controller))
	})
	for _, times := range []struct {
		name string
		of   func(result) []time.Duration
	}{
		{"plugged in: until there is an Instance", func(r result) []time.Duration { return r.plugged }},
		{"plugged in: until the scheduler can give it", func(r result) []time.Duration { return r.scheduled }},
		{"plugged out: until the scheduler cannot", func(r result) []time.Duration { return r.unplugged }},
		{"plugged out: until there is no Instance", func(r result) []time.Duration { return r.removed }},
	} {
		row(times.name+", ms: p50, p99, most", func(r result) string {
			sorted := slices.Sorted(slices.Values(times.of(r)))
			return fmt.Sprintf("%d, %d, %d", quantile(sorted, 0.5).Milliseconds(), quantile(sorted, 0.99).Milliseconds(), quantile(sorted, 1).Milliseconds())
		})
	}
	_, err := io.WriteString(out, text.String())
	return err
}

// list is a writer's writes, "43: 41 deviceslices, 2 nodes".
func (w writes) list(writer string) string {
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(w)) {
		if resource, is := strings.CutPrefix(what, writer+" "); is {
			parts = append(parts, fmt.Sprintf("%d %s", w[what], resource))
		}
	}
	if len(parts) == 0 {
		return "0"
	}
	return fmt.Sprintf("%d: %s", w.of(writer), strings.Join(parts, ", "))
}

func (u usage) memory() string { return fmt.Sprintf("%.0f (%.0f)", u.resident, u.anonymous) }

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f", d.Seconds()) }

func percent(part float64) string { return fmt.Sprintf("%.2f", 100*part) }

// quantile is of sorted durations: the least that q of them do not exceed.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	i := int(math.Ceil(q*float64(len(sorted)))) - 1
	return sorted[min(max(i, 0), len(sorted)-1)]
}
