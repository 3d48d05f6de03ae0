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
	grow(t.widths, lines)
	last := len(t.columns) - 1
	before := 0 // the last column
	for _, width := range t.widths[:last] {
		before += width
	}
	breaks := t.width > 0 && t.columns[last].kind == textColumn && before+t.widths[last]-gap > t.width
	for _, cells := range lines {
		switch {
		case !breaks:
			fmt.Fprintln(t.to, aligned(cells, t.widths))
		case t.width-before >= leastText:
			for _, line := range wrapLine(aligned(cells, t.widths), t.width, before) {
				fmt.Fprintln(t.to, line)
			}
		default:
			fmt.Fprintln(t.to, aligned(cells[:last], t.widths))
			if cells[last] == nothing {
				continue
			}
			for _, line := range wrapLine("    "+cells[last], t.width, 4) {
				fmt.Fprintln(t.to, line)
			}
		}
	}
}

// cells are the texts of the rows, after the columns' names if they are still to be printed.
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
	return lines
}

// grow makes the columns as wide as the lines need them, with the gap behind them.
func grow(widths []int, lines [][]string) {
	for _, cells := range lines {
		for i, cell := range cells {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell)+gap, least)
		}
	}
}

// aligned is a line of cells in columns of these widths.
func aligned(cells []string, widths []int) string {
	var text strings.Builder
	for i, cell := range cells {
		text.WriteString(cell)
		if i < len(cells)-1 {
			text.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)))
		}
	}
	return text.String()
}
