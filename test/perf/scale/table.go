package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"
)

// row is a line of the table: a figure for each number of nodes.
type row struct {
	name   string
	format string
	of     func(result) float64
	fitted bool // whether its growth is of interest
}

// rows are those of the table. MB are 10^6 bytes.
func rows(o *options) []row {
	return []row{
		{fmt.Sprintf("join of %d shared devices: until all are reported, s", o.shared), "%.2f", func(r result) float64 { return r.Join.Seconds }, true},
		{"join: slice writes", "%.0f", func(r result) float64 { return r.Join.Slices }, true},
		{"join: conflicts", "%.0f", func(r result) float64 { return r.Join.Conflicts }, false},
		{"join: CPU of API server and etcd, s", "%.2f", func(r result) float64 { return r.Join.cpu() }, true},
		{"join: CPU of the hollow nodes, s", "%.2f", func(r result) float64 { return r.Join.Own }, true},
		{"join: sent to the nodes, MB", "%.2f", func(r result) float64 { return r.Join.Sent / 1e6 }, true},
		{fmt.Sprintf("idle for %s: writes", o.idle), "%.0f", func(r result) float64 { return r.Idle.Writes }, false},
		{"idle: CPU of API server and etcd, % of a core", "%.1f", func(r result) float64 { return 100 * r.Idle.cpu() / r.Idle.Seconds }, false},
		{"idle: sent to the nodes, kB", "%.0f", func(r result) float64 { return r.Idle.Sent / 1e3 }, true},
		{fmt.Sprintf("two nodes discover for all, idle for %s: writes of Leases", o.idle), "%.0f",
			func(r result) float64 { return r.Elected.Leases }, false},
		{"two discover: lists of Leases", "%.0f", func(r result) float64 { return r.Elected.LeaseLists }, false},
		{"two discover: sent to the nodes, kB", "%.0f", func(r result) float64 { return r.Elected.Sent / 1e3 }, true},
		{"two discover: CPU of API server and etcd, % of a core", "%.1f",
			func(r result) float64 { return 100 * r.Elected.cpu() / r.Elected.Seconds }, false},
		{"a claim: taken, p50 ms", "%.1f", func(r result) float64 { return milliseconds(quantile(r.Taken, 0.5)) }, true},
		{"a claim: taken, p99 ms", "%.1f", func(r result) float64 { return milliseconds(quantile(r.Taken, 0.99)) }, false},
		{"a claim: a watcher of all knows, p50 ms", "%.1f", func(r result) float64 { return milliseconds(quantile(r.Told, 0.5)) }, true},
		{"a claim: CPU of API server and etcd, ms", "%.2f", func(r result) float64 { return 1000 * r.Claim.cpu() / float64(len(r.Taken)) }, true},
		{"a claim: sent to the nodes, kB", "%.2f", func(r result) float64 { return r.Claim.Sent / 1e3 / float64(len(r.Taken)) }, true},
		{"a release: CPU of API server and etcd, ms", "%.2f", func(r result) float64 { return 1000 * r.Release.cpu() / float64(len(r.Taken)) }, true},
		{"all restart: until all have synced, s", "%.2f", func(r result) float64 { return r.Restart.Seconds }, true},
		{"all restart: CPU of API server and etcd, s", "%.2f", func(r result) float64 { return r.Restart.cpu() }, true},
		{"all restart: CPU of the hollow nodes, s", "%.2f", func(r result) float64 { return r.Restart.Own }, true},
		{"all restart: sent to the nodes, MB", "%.2f", func(r result) float64 { return r.Restart.Sent / 1e6 }, true},
		{"all restart: writes", "%.0f", func(r result) float64 { return r.Restart.Writes }, false},
	}
}

// peer is a line of the table of the bare client: what it took, and what ours did.
type peer struct {
	name       string
	bare, ours func(result) float64
}

func peers() []peer {
	claims := func(r result) float64 { return 1000 / float64(len(r.Taken)) }
	return []peer{
		{"join: until all are answered, s", func(r result) float64 { return r.Bare.Join.Seconds }, func(r result) float64 { return r.Join.Seconds }},
		{"join: CPU of API server and etcd, s", func(r result) float64 { return r.Bare.Join.cpu() }, func(r result) float64 { return r.Join.cpu() }},
		{"a claim: CPU of API server and etcd, ms", func(r result) float64 { return r.Bare.Claim.cpu() * claims(r) }, func(r result) float64 { return r.Claim.cpu() * claims(r) }},
		{"a release: CPU of API server and etcd, ms", func(r result) float64 { return r.Bare.Release.cpu() * claims(r) }, func(r result) float64 { return r.Release.cpu() * claims(r) }},
		{"all restart: until all watch, s", func(r result) float64 { return r.Bare.Restart.Seconds }, func(r result) float64 { return r.Restart.Seconds }},
		{"all restart: CPU of API server and etcd, s", func(r result) float64 { return r.Bare.Restart.cpu() }, func(r result) float64 { return r.Restart.cpu() }},
	}
}

// writePeers prints what the bare client took, and in brackets how much more ours did.
func writePeers(text *strings.Builder, results []result) {
	text.WriteString("\n| a bare client (ours: times as much)")
	for _, r := range results {
		fmt.Fprintf(text, " | N=%d", r.Nodes)
	}
	text.WriteString(" |\n|---" + strings.Repeat("|---", len(results)) + "|\n")
	for _, p := range peers() {
		fmt.Fprintf(text, "| %s", p.name)
		for _, r := range results {
			fmt.Fprintf(text, " | %.2f (%.1f)", p.bare(r), p.ours(r)/p.bare(r))
		}
		text.WriteString(" |\n")
	}
}

// write prints the results as a table in Markdown.
func write(out io.Writer, o *options, results []result, local *localResult) error {
	var text strings.Builder
	text.WriteString("|")
	for _, r := range results {
		fmt.Fprintf(&text, " | N=%d", r.Nodes)
	}
	text.WriteString(" | growth |\n|---" + strings.Repeat("|---", len(results)+1) + "|\n")
	for _, row := range rows(o) {
		fmt.Fprintf(&text, "| %s", row.name)
		var x, y []float64
		for _, r := range results {
			value := row.of(r)
			fmt.Fprintf(&text, " | "+row.format, value)
			x, y = append(x, float64(r.Nodes)), append(y, value)
		}
		growth := "–"
		if k, ok := exponent(x, y); ok && row.fitted {
			growth = fmt.Sprintf("N^%.1f", k)
		}
		fmt.Fprintf(&text, " | %s |\n", growth)
	}
	writePeers(&text, results)
	if local != nil {
		fmt.Fprintf(&text, "\n| %d local devices of %d Configurations on one node | |\n|---|---|\n", o.devices, o.kinds)
		fmt.Fprintf(&text, "| until the scheduler can give all, s | %.1f |\n| slice writes | %.0f |\n| conflicts | %.0f |\n", local.Seconds, local.Slices, local.Conflicts)
		fmt.Fprintf(&text, "| writes of the Node | %.0f |\n| the node's process, MiB that no file backs | %.0f |\n| resources in node.status | %d |\n", local.NodeWrites, local.Resident, local.Resources)
	}
	_, err := io.WriteString(out, text.String())
	return err
}

// exponent fits y = a·x^k by least squares of the logarithms. It reports false when
// there is nothing to fit.
func exponent(x, y []float64) (k float64, ok bool) {
	if len(x) < 2 || slices.Min(y) <= 0 {
		return 0, false
	}
	var n, sx, sy, sxx, sxy float64
	for i := range x {
		lx, ly := math.Log(x[i]), math.Log(y[i])
		n, sx, sy, sxx, sxy = n+1, sx+lx, sy+ly, sxx+lx*lx, sxy+lx*ly
	}
	if d := n*sxx - sx*sx; d > 0 {
		return (n*sxy - sx*sy) / d, true
	}
	return 0, false
}

// quantile is of sorted durations.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
