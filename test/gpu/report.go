package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

type result string

const (
	passed      result = "ok"
	failed      result = "failed"
	notCompared result = "not compared" // there was nothing to compare with: no pass
)

type row struct {
	check  string
	result result
	detail string
}

// report is the rows of the table.
type report []row

// pass adds a check that passed, unless there are differences: then it has failed.
func (r *report) pass(check, detail string, differences ...string) {
	if len(differences) > 0 {
		*r = append(*r, row{check, failed, strings.Join(differences, "; ")})
		return
	}
	*r = append(*r, row{check, passed, detail})
}

func (r *report) skip(check string, why error) {
	*r = append(*r, row{check, notCompared, why.Error()})
}

func (r report) count(what result) int {
	n := 0
	for _, row := range r {
		if row.result == what {
			n++
		}
	}
	return n
}

// print writes the table, as in Markdown.
func (r report) print(w io.Writer) {
	columns := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
	fmt.Fprintln(columns, "| check\t| result\t| detail\t|")
	fmt.Fprintln(columns, "|---\t|---\t|---\t|")
	for _, row := range r {
		detail := strings.Join(strings.Fields(strings.ReplaceAll(row.detail, "|", "/")), " ")
		fmt.Fprintf(columns, "| %s\t| %s\t| %s\t|\n", row.check, row.result, detail)
	}
	columns.Flush()
	fmt.Fprintf(w, "%d ok, %d failed, %d not compared\n", r.count(passed), r.count(failed), r.count(notCompared))
}
