package command

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// table writes rows in aligned columns, as kubectl does. Its columns grow with the rows
// that come, so that what --watch adds stays below its column's name.
type table[T any] struct {
	to      io.Writer
	columns []column[T]
	widths  []int
	headers bool // still to be printed
	// width is how long lines may be; 0 for any length. Only a text in the last column is broken:
	// it goes on below itself or, where too little place is left for that, stands below its row.
	width int
}

func newTable[T any](to io.Writer, columns []column[T], wide, headers bool, width int) *table[T] {
	if !wide {
		columns = slices.DeleteFunc(slices.Clone(columns), func(c column[T]) bool { return c.kind == wideColumn })
	}
	return &table[T]{to: to, columns: columns, widths: make([]int, len(columns)), headers: headers, width: width}
}

const (
	gap, least = 3, 6 // between two columns, and of a column at least; kubectl's
	leastText  = 30   // of a text beside other columns
)

func (t *table[T]) print(rows []T) {
	lines := t.cells(rows)
	last := len(t.columns) - 1
	before := 0 // the last column
	for _, width := range t.widths[:last] {
		before += width
	}
	breaks := t.width > 0 && t.columns[last].kind == textColumn && before+t.widths[last]-gap > t.width
	for _, cells := range lines {
		switch {
		case !breaks:
			fmt.Fprintln(t.to, t.line(cells))
		case t.width-before >= leastText:
			for _, line := range wrapLine(t.line(cells), t.width, before) {
				fmt.Fprintln(t.to, line)
			}
		default:
			fmt.Fprintln(t.to, t.line(cells[:last]))
			if cells[last] == nothing {
				continue
			}
			for _, line := range wrapLine("    "+cells[last], t.width, 4) {
				fmt.Fprintln(t.to, line)
			}
		}
	}
}

// cells are the texts of the rows, after the columns' names if they are still to be printed. The
// widths grow to them.
func (t *table[T]) cells(rows []T) [][]string {
	var lines [][]string
	if t.headers {
		t.headers = false
		var names []string
		for _, c := range t.columns {
			names = append(names, c.name)
		}
		lines = append(lines, names)
	}
	for i := range rows {
		cells := make([]string, len(t.columns))
		for j, c := range t.columns {
			// What a device or a pod's author wrote must not move the cursor.
			cells[j] = oneLine(c.value(&rows[i]))
		}
		lines = append(lines, cells)
	}
	for _, cells := range lines {
		for j, cell := range cells {
			t.widths[j] = max(t.widths[j], utf8.RuneCountInString(cell)+gap, least)
		}
	}
	return lines
}

// line aligns the first cells of a row.
func (t *table[T]) line(cells []string) string {
	var text strings.Builder
	for j, cell := range cells {
		text.WriteString(cell)
		if j < len(cells)-1 {
			text.WriteString(strings.Repeat(" ", t.widths[j]-utf8.RuneCountInString(cell)))
		}
	}
	return text.String()
}
