package command

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericclioptions"
)

// apiVersion is what printed objects say. They are not the API server's.
const apiVersion = "kubectl.kubeslot.io/v1alpha1"

// column is one of a table.
type column[T any] struct {
	name  string
	wide  bool // shown with -o wide alone
	value func(row *T) string
}

// formats are those of --output, besides wide.
func formats() []string { return flags("").AllowedFormats() }

func flags(output string) *genericclioptions.PrintFlags {
	f := genericclioptions.NewPrintFlags("")
	f.OutputFormat = &output
	return f
}

// checkOutput refuses a format that there is not, before anything is read.
func (o *options) checkOutput() error {
	if o.table() {
		return nil
	}
	_, err := flags(o.output).ToPrinter()
	return err
}

// table reports whether rows are printed as a table.
func (o *options) table() bool { return o.output == "" || o.output == "wide" }

// printRows prints the rows as a table, or as --output says. none is said when there are
// no rows for a table.
func printRows[T any](o *options, kind string, rows []T, columns []column[T], none string) error {
	if o.table() {
		if len(rows) == 0 {
			_, err := fmt.Fprintln(o.streams.ErrOut, none)
			return err
		}
		newTable(o.streams.Out, columns, o.output == "wide", !o.noHeaders).print(rows)
		return nil
	}
	return o.printList(kind, len(rows), func(i int) any { return &rows[i] })
}

// describe describes the objects one after the other, or prints them as --output says: a
// single one as itself.
func describe[T any](o *options, kind string, all []T, text func(io.Writer, *T)) error {
	if o.table() {
		for i := range all {
			if i > 0 {
				fmt.Fprintln(o.streams.Out)
			}
			text(o.streams.Out, &all[i])
		}
		return nil
	}
	if len(all) > 1 {
		return o.printList(kind, len(all), func(i int) any { return &all[i] })
	}
	return o.printObject(kind, &all[0])
}

func (o *options) printObject(kind string, what any) error {
	object, err := object(kind, what)
	if err != nil {
		return err
	}
	printer, err := flags(o.output).ToPrinter()
	if err != nil {
		return err
	}
	return printer.PrintObj(object, o.streams.Out)
}

func (o *options) printList(kind string, n int, at func(int) any) error {
	list := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": apiVersion, "kind": kind + "List"}}
	for i := range n {
		object, err := object(kind, at(i))
		if err != nil {
			return err
		}
		list.Items = append(list.Items, *object)
	}
	printer, err := flags(o.output).ToPrinter()
	if err != nil {
		return err
	}
	return printer.PrintObj(list, o.streams.Out)
}

// object is the value as one that printers know. Its fields name, namespace and labels
// become metadata.
func object(kind string, value any) (*unstructured.Unstructured, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	fields := map[string]any{}
	if err := json.Unmarshal(text, &fields); err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: fields}
	for field, set := range map[string]func(string){"name": u.SetName, "namespace": u.SetNamespace} {
		if value, ok := fields[field].(string); ok {
			delete(fields, field)
			set(value)
		}
	}
	if labels, ok := fields["labels"].(map[string]any); ok {
		delete(fields, "labels")
		if err := unstructured.SetNestedMap(fields, labels, "metadata", "labels"); err != nil {
			return nil, err
		}
	}
	u.SetAPIVersion(apiVersion)
	u.SetKind(kind)
	return u, nil
}

// table writes rows in aligned columns, as kubectl does. Its columns grow with the rows
// that come, so that what --watch adds stays below its column's name.
type table[T any] struct {
	to      io.Writer
	columns []column[T]
	widths  []int
	headers bool // still to be printed
}

func newTable[T any](to io.Writer, columns []column[T], wide, headers bool) *table[T] {
	if !wide {
		columns = slices.DeleteFunc(slices.Clone(columns), func(c column[T]) bool { return c.wide })
	}
	return &table[T]{to: to, columns: columns, widths: make([]int, len(columns)), headers: headers}
}

// Between two columns, and of a column at least; kubectl's.
const gap, least = 3, 6

func (t *table[T]) print(rows []T) {
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
	for _, line := range lines {
		for j, cell := range line {
			t.widths[j] = max(t.widths[j], utf8.RuneCountInString(cell)+gap, least)
		}
	}
	for _, line := range lines {
		var text strings.Builder
		for j, cell := range line {
			text.WriteString(cell)
			if j < len(line)-1 {
				text.WriteString(strings.Repeat(" ", t.widths[j]-utf8.RuneCountInString(cell)))
			}
		}
		fmt.Fprintln(t.to, text.String())
	}
}

// oneLine is the text as a cell or a line of its own; "-" for none.
func oneLine(text string) string {
	if text == "" {
		return "-"
	}
	return plain(text)
}

// plain is the text without unprintable characters: they could move the cursor, or reverse
// the direction of the text.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
}
