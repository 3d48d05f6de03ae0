package command

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/kubectl/pkg/cmd/get"
)

// apiVersion is what printed objects say. They are not the API server's.
const apiVersion = "kubectl.kubeslot.io/v1alpha1"

// column is one of a table.
type column[T any] struct {
	name  string
	kind  columnKind
	value func(row *T) string
}

type columnKind int

const (
	wordColumn columnKind = iota // names and numbers
	textColumn                   // sentences, which a terminal breaks; the last of a table
	wideColumn                   // shown with -o wide alone
)

// formats are those of --output, in order.
func formats() []string {
	all := append([]string{"wide"}, genericclioptions.NewPrintFlags("").AllowedFormats()...)
	all = append(all, get.NewCustomColumnsPrintFlags().AllowedFormats()...)
	slices.Sort(all)
	return all
}

// setPrinter makes what prints the format of --output, before anything is read: it refuses a format that there is
// not, and expressions that cannot be read.
func (o *options) setPrinter() (err error) {
	if o.table() {
		return nil
	}
	f := genericclioptions.NewPrintFlags("")
	f.OutputFormat = &o.output
	if o.printer, err = f.ToPrinter(); !genericclioptions.IsNoCompatiblePrinterError(err) {
		return err
	}
	o.printer, err = (&get.CustomColumnsPrintFlags{NoHeaders: o.noHeaders}).ToPrinter(o.output)
	if genericclioptions.IsNoCompatiblePrinterError(err) {
		return genericclioptions.NoCompatiblePrinterError{OutputFormat: &o.output, AllowedFormats: formats()}
	}
	if err != nil {
		return fmt.Errorf("--output: %w", err)
	}
	for _, c := range o.printer.(*get.CustomColumnsPrinter).Columns {
		if _, err := field(c.FieldSpec); err != nil {
			return fmt.Errorf("--output: column %s: %w", c.Header, err)
		}
	}
	return nil
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
		newTable(o.streams.Out, columns, o.output == "wide", !o.noHeaders, o.lineWidth()).print(rows)
		return nil
	}
	return o.printList(kind, len(rows), func(i int) any { return &rows[i] })
}

// describe describes the objects one after the other, or prints them as --output says: a
// single one as itself.
func describe[T any](o *options, kind string, all []T, text func(io.Writer, *T)) error {
	if o.table() {
		var out bytes.Buffer
		for i := range all {
			if i > 0 {
				fmt.Fprintln(&out)
			}
			text(&out, &all[i])
		}
		_, err := fmt.Fprintln(o.streams.Out, o.broken(strings.TrimSuffix(out.String(), "\n")))
		return err
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
	return o.printer.PrintObj(object, o.streams.Out)
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
	return o.printer.PrintObj(list, o.streams.Out)
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

// nothing is what stands where there is nothing.
const nothing = "-"

// oneLine is the text as a cell or a line of its own.
func oneLine(text string) string {
	if text == "" {
		return nothing
	}
	return plain(text)
}

// plain is the text without unprintable characters: they could move the cursor, or reverse
// the direction of the text.
func plain(text string) string { return printable(text, "") }

// plainLines is plain for a text of several lines.
func plainLines(text string) string { return printable(text, "\n\t") }

// printable is the text with a question mark for each character that is neither printable nor kept.
func printable(text, kept string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) && !strings.ContainsRune(kept, r) {
			return '?'
		}
		return r
	}, text)
}
