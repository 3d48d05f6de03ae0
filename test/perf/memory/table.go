package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"time"
)

func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%6.1fs  %s\n", time.Since(begin).Seconds(), fmt.Sprintf(format, args...))
}

// write prints the results as Markdown: medians, with the least and the most.
func write(out io.Writer, s size, plain, ours *arm) error {
	_, err := fmt.Fprintf(out, "\n%d nodes, %d slots, %d bound pods, %d rounds; MiB\n\n| | plain | ours | ratio |\n|---|---|---|---|\n",
		s.nodes, s.nodes*s.slots, s.pods, len(plain.rounds))
	row := func(name string, a, b []memory, of func(memory) float64) {
		if err == nil {
			x, y := spread(a, of), spread(b, of)
			_, err = fmt.Fprintf(out, "| %s | %s | %s | %.2f |\n", name, x, y, y.median/x.median)
		}
	}
	resident := func(m memory) float64 { return m.resident }
	heap := func(m memory) float64 { return m.heap }
	peak := func(m memory) float64 { return m.peak }
	row("resident, started on the full cluster", plain.rounds, ours.rounds, resident)
	row("heap in use", plain.rounds, ours.rounds, heap)
	row("most resident since the start", plain.rounds, ours.rounds, peak)
	first, second := []memory{plain.scheduled}, []memory{ours.scheduled}
	row("resident, after binding all pods", first, second, resident)
	row("heap in use", first, second, heap)
	row("most resident since the start", first, second, peak)
	return err
}

// values are of several rounds.
type values struct{ least, median, most float64 }

func spread(rounds []memory, of func(memory) float64) values {
	var sorted []float64
	for _, m := range rounds {
		sorted = append(sorted, of(m)/(1<<20))
	}
	slices.Sort(sorted)
	n := len(sorted)
	return values{sorted[0], (sorted[(n-1)/2] + sorted[n/2]) / 2, sorted[n-1]}
}

func (v values) String() string {
	if v.least == v.most {
		return fmt.Sprintf("%.1f", v.median)
	}
	return fmt.Sprintf("%.1f (%.1f to %.1f)", v.median, v.least, v.most)
}
