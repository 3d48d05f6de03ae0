package hostinstall

import (
	"fmt"
	"io"
	"strings"
)

// Print says what Apply will do.
func Print(out io.Writer, p Plan) {
	fmt.Fprintln(out, p.Title+":")
	line := func(what, format string, args ...any) {
		fmt.Fprintf(out, "  %-8s%s\n", what, fmt.Sprintf(format, args...))
	}
	for _, s := range p.Stages {
		for _, command := range s.Before {
			line("run", "systemctl %s", strings.Join(command, " "))
		}
		for _, c := range s.Changes {
			switch {
			case c.After == nil:
				line("remove", "%s", c.Path)
				continue
			case c.Before == nil:
				line("create", "%s", c.Path)
			default:
				line("change", "%s", c.Path)
			}
			if c.Path != Program && c.Path != RecordFile && (c.Before != nil || c.Path != UnitFile) {
				printDifference(out, c)
			}
		}
		for i, command := range s.Commands {
			wait := ""
			if i == len(s.Commands)-1 && s.Await != Nothing {
				wait = ", and wait " + string(s.Await)
			}
			line("run", "systemctl %s%s", strings.Join(command, " "), wait)
		}
	}
	for _, note := range p.Notes {
		fmt.Fprintf(out, "  %-8s%s\n", "note", note)
	}
}

// printDifference shows the lines that come and go. What is changed here are single
// lines, so those that both have are left out wherever they stand.
func printDifference(out io.Writer, c Change) {
	before := ""
	if c.Before != nil {
		before = *c.Before
	}
	for _, l := range linesWithout(before, *c.After) {
		fmt.Fprintf(out, "          - %s\n", l)
	}
	for _, l := range linesWithout(*c.After, before) {
		fmt.Fprintf(out, "          + %s\n", l)
	}
}

// linesWithout returns the lines of a that b does not have as often.
func linesWithout(a, b string) []string {
	count := map[string]int{}
	for line := range strings.Lines(b) {
		count[strings.TrimRight(line, "\r\n")]++
	}
	var rest []string
	for line := range strings.Lines(a) {
		line = strings.TrimRight(line, "\r\n")
		if count[line]--; count[line] < 0 {
			rest = append(rest, line)
		}
	}
	return rest
}
