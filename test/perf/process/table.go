package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

var begin = time.Now()

func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%6.1fs  %s\n", time.Since(begin).Seconds(), fmt.Sprintf(format, args...))
}

const mib = 1 << 20

// write prints the results as Markdown: medians, with the least and the most, and
// how many times the first arm's.
func write(out io.Writer, s size, arms []*arm) error {
	var text strings.Builder
	fmt.Fprintf(&text, "\n%d nodes, %d slots, %d bound pods, %d rounds of %d further ones", s.nodes, s.nodes*s.slots, s.pods, s.rounds, s.further)
	fmt.Fprintf(&text, "\n\n|")
	for _, a := range arms {
		fmt.Fprintf(&text, " | %s", a.name)
	}
	fmt.Fprintf(&text, " |\n|---%s|\n", strings.Repeat("|---", len(arms)))
	row := func(name string, of func(*arm) []float64) {
		fmt.Fprintf(&text, "| %s", name)
		first := spread(of(arms[0]))
		for _, a := range arms {
			v := spread(of(a))
			fmt.Fprintf(&text, " | %s", v)
			if a != arms[0] {
				fmt.Fprintf(&text, ", %.2f×", v.median/first.median)
			}
		}
		fmt.Fprintln(&text, " |")
	}
	started := func(of func(memory) float64) func(*arm) []float64 {
		return func(a *arm) []float64 { return each(a.restarted, of) }
	}
	scheduled := func(of func(memory) float64) func(*arm) []float64 {
		return func(a *arm) []float64 { return []float64{of(a.scheduled)} }
	}
	anonymous := func(m memory) float64 { return m.anonymous / mib }
	heap := func(m memory) float64 { return m.heap / mib }
	row("started on the full cluster: heap in use, MiB", started(heap))
	row("anonymous resident memory, MiB", started(anonymous))
	row("after binding all pods: heap in use, MiB", scheduled(heap))
	row("anonymous resident memory, MiB", scheduled(anonymous))

	further := func(of func(speed) float64) func(*arm) []float64 {
		return func(a *arm) []float64 { return each(a.speeds, of) }
	}
	row("further pods, pods/s", further(func(s speed) float64 { return s.pods / s.seconds }))
	row("CPU of the scheduler, ms/pod", further(func(s speed) float64 { return 1000 * s.cpu.scheduler / s.pods }))
	row("CPU of the API server, ms/pod", further(func(s speed) float64 { return 1000 * s.cpu.api / s.pods }))
	row("CPU of etcd, ms/pod", further(func(s speed) float64 { return 1000 * s.cpu.etcd / s.pods }))
	_, err := io.WriteString(out, text.String())
	return err
}

func each[T any](rounds []T, of func(T) float64) []float64 {
	var values []float64
	for _, r := range rounds {
		values = append(values, of(r))
	}
	return values
}

// values are of several rounds.
type values struct{ least, median, most float64 }

func spread(rounds []float64) values {
	sorted := slices.Sorted(slices.Values(rounds))
	n := len(sorted)
	return values{sorted[0], (sorted[(n-1)/2] + sorted[n/2]) / 2, sorted[n-1]}
}

func (v values) String() string {
	digits := 1
	if v.most < 10 {
		digits = 2
	}
	if v.least == v.most {
		return fmt.Sprintf("%.*f", digits, v.median)
	}
	return fmt.Sprintf("%.*f (%.*f–%.*f)", digits, v.median, digits, v.least, digits, v.most)
}
