package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// timesDir is where each step of the last run leaves <step>.txt, its table of times, and <step>.json, the output of
// go test -json.
const timesDir = "_output/test-times"

// shortest is what a test takes to be in a table, in seconds.
const shortest = 0.1

// writeTimes writes a table of times, longest first, below a line that says what it is of.
func writeTimes(file, of string, times []timed) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n# seconds  what\n", of)
	for _, t := range times {
		if t.Kind != "test" || t.Seconds >= shortest {
			fmt.Fprintf(&b, "%9.1f  %-8s %s\n", t.Seconds, t.Kind, t.Name)
		}
	}
	return os.WriteFile(file, []byte(b.String()), 0o644)
}

// longest returns the n tests that took longest in the tables of times, without those below others.
func longest(dir string, n int) ([]timed, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("there is no table in %s yet: make test leaves them", dir)
	}
	if err != nil {
		return nil, err
	}
	var all []timed
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(text)) {
			fields := strings.Fields(line)
			if len(fields) != 4 || fields[1] != "test" || strings.Contains(fields[3], "/") {
				continue
			}
			seconds, err := strconv.ParseFloat(fields[0], 64)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			all = append(all, timed{seconds, "test", fields[2] + " " + fields[3]})
		}
	}
	slices.SortStableFunc(all, func(a, b timed) int { return cmp.Compare(b.Seconds, a.Seconds) })
	return all[:min(n, len(all))], nil
}
