package command

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"
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

// print prints the rows as a table, or as --output says. none is said when there are
// no rows for a table.
func print[T any](o *options, kind string, rows []T, columns []column[T], none string) error {
	if o.output != "" && o.output != "wide" {
		list := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": apiVersion, "kind": kind + "List"}}
		for i := range rows {
			object, err := object(kind, &rows[i])
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
	if len(rows) == 0 {
		_, err := fmt.Fprintln(o.streams.ErrOut, none)
		return err
	}
	table(o.streams.Out, rows, columns, o.output == "wide", !o.noHeaders)
	return nil
}

// table writes rows in aligned columns.
func table[T any](to io.Writer, rows []T, columns []column[T], wide, headers bool) {
	w := printers.GetNewTabWriter(to)
	defer w.Flush()
	var shown []column[T]
	var names []string
	for _, c := range columns {
		if !c.wide || wide {
			shown, names = append(shown, c), append(names, c.name)
		}
	}
	if headers {
		fmt.Fprintln(w, strings.Join(names, "\t"))
	}
	for i := range rows {
		cells := make([]string, len(shown))
		for j, c := range shown {
			// What a device or a pod's author wrote must not move the cursor.
			cells[j] = oneLine(c.value(&rows[i]))
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
}

func oneLine(text string) string {
	if text == "" {
		return "-"
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || 0x80 <= r && r < 0xa0 {
			return '?'
		}
		return r
	}, text)
}

// one prints one object as --output says, or describes it.
func (o *options) one(kind string, what any, describe func(io.Writer)) error {
	if o.output == "" || o.output == "wide" {
		describe(o.streams.Out)
		return nil
	}
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

// object is the value as one that printers know. Its fields name and namespace become
// metadata.
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
	u.SetAPIVersion(apiVersion)
	u.SetKind(kind)
	return u, nil
}
