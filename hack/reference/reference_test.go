package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// Each string of the programs, and each word of the manifests, that looks like a key is on the page.
func TestKeysAreOnThePage(t *testing.T) {
	text, err := os.ReadFile("../../docs/reference/labels-and-annotations.md")
	if err != nil {
		t.Fatal(err)
	}
	events, err := os.ReadFile("../../docs/reference/events-and-conditions.md")
	if err != nil {
		t.Fatal(err)
	}
	page, found := string(text)+string(events), 0
	look := func(path, name string) {
		if !isKey(name) {
			return
		}
		found++
		if !strings.Contains(page, "`"+name+"`") && !strings.Contains(page, "`"+name+"<") {
			t.Errorf("%s has %s, which is not on the page", path, name)
		}
	}
	words := regexp.MustCompile(`(?:kubeslot\.io|akri\.sh)/[A-Za-z-]+`)
	err = filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			if path != "../.." && skipped[d.Name()] {
				return filepath.SkipDir
			}
			return nil
		case strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go"):
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
					if name, err := strconv.Unquote(literal.Value); err == nil {
						look(path, name)
					}
				}
				return true
			})
		case strings.HasPrefix(path, "../../deploy/") && strings.HasSuffix(path, ".yaml"):
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, name := range words.FindAllString(string(text), -1) {
				look(path, name)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found < 50 {
		t.Errorf("found only %d uses of keys", found)
	}
}

func TestKeyOf(t *testing.T) {
	const last = "\n\nLabel of Pods. Written by kubecri in\nNRI mode. Read by people, a <policy>."
	k, err := keyOf("kubeslot.io/a", "A", "A is the pod's,\nas in `<x>`."+last)
	want := key{
		"kubeslot.io/a",
		"Label",
		"Pods",
		"kubecri in NRI mode",
		`people, a \<policy>`,
		"The pod's, as in `<x>`.",
	}
	if err != nil || k != want {
		t.Errorf("%+v, %v; want %+v", k, err, want)
	}
	for _, bad := range []string{"A is the pod's.", last[2:], "A is.\n\nLabel of Pods. Written by kubecri."} {
		if _, err := keyOf("kubeslot.io/a", "A", bad); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}

// of reads a tree with one package.
func of(t *testing.T, folder, source string) *tree {
	t.Helper()
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, folder), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, folder, "a.go"), []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	read, err := readTree(root)
	if err != nil {
		t.Fatal(err)
	}
	return read
}

func TestMetricsIn(t *testing.T) {
	tree := of(t, "kubecri", `package kubecri
import "example.com/metrics"
const subsystem = "kubecri"
var labels = []string{"a", "b"}
var x = metrics.NewGaugeVec(&metrics.GaugeOpts{Subsystem: subsystem, Name: "x", Help: "X" + "."}, labels)
var y = metrics.NewDesc(subsystem+"_y_total", "Y.", nil, nil)
var z = counter("z_total", "Z.")
func counter(name, help string) any {
	return metrics.NewCounter(&metrics.CounterOpts{Subsystem: subsystem, Name: name, Help: help})
}`)
	got, err := metricsIn(tree, "kubecri")
	want := []metric{
		{name: "kubecri_x", kind: "gauge", help: "X.", labels: []string{"a", "b"}, family: "kubecri_"},
		{name: "kubecri_y_total", kind: "counter", help: "Y."},
		{name: "kubecri_z_total", kind: "counter", help: "Z.", family: "kubecri_"},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	tree = of(
		t,
		"kubecri",
		"package kubecri\nimport \"example.com/metrics\"\nvar x = metrics.NewDesc(\"x\", help(), nil, nil)",
	)
	if _, err := metricsIn(tree, "kubecri"); err == nil {
		t.Error("a help that is no constant: no error")
	}
}

func TestFlag(t *testing.T) {
	tree := of(t, "controller", `package controller
import ("time"; "example.com/pflag"; "fmt")
const def = "/var"
type grace struct{ Shared time.Duration }
var Default = grace{Shared: 90 * time.Second}
func add(f *pflag.FlagSet, o *options) {
	f.StringVar(&o.a, "a", def+"/a", "A.")
	f.BoolVarP(&o.b, "bee", "b", true, "B"+".")
	f.DurationVar(&o.c, "c", 10*time.Second, fmt.Sprintf("C in %s.", def))
	f.StringSliceVar(&o.d, "d", []string{"x", "y"}, "D.")
	f.Int("e", 7, "E.")
	f.Lookup("f")
}`)
	var got []flag
	tree.each("", func(_ *goPackage, n ast.Node) {
		if call, ok := n.(*ast.CallExpr); ok {
			if f, is, err := tree.flag(call); err != nil {
				t.Error(err)
			} else if is {
				got = append(got, f)
			}
		}
	})
	want := []flag{
		{"a", "", "/var/a", "A."},
		{"bee", "b", "true", "B."},
		{"c", "", "10s", "C in /var."},
		{"d", "", "x,y", "D."},
		{"e", "", "7", "E."},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// A reason that only the code has is found, and one that only the table has.
func TestCompare(t *testing.T) {
	tree := of(t, "kubecri", `package kubecri
import corev1 "example.com/core"
// Reasons of Events.
const gone = "DeviceGone"
func f(r *recorder) {
	r.Eventf(pod, corev1.EventTypeWarning, "SlotLost", "text")
	set(condition{Type: "Ready", Reason: "AllReady"})
}`)
	reasons := func(names ...string) (all []reason) {
		for _, name := range names {
			all = append(all, reason{Reason: name})
		}
		return all
	}
	all := reasonTables{Events: reasons("DeviceGone", "SlotLost"), Reasons: reasons("AllReady")}
	if err := tree.compare(all); err != nil {
		t.Error(err)
	}
	err := tree.compare(reasonTables{Events: reasons("Nobodys")})
	for _, want := range []string{"reason DeviceGone", "reason SlotLost", "reason AllReady", "has Nobodys"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no word of %q in: %v", want, err)
		}
	}
}

func TestComments(t *testing.T) {
	got := comments("# All\n# of a.\na:\n  # Of b.\n  b: 1\n  c: {d: 2} # not this\n#  example: 1\ne: x\n")
	want := notes{
		[]string{"a", "a.b", "a.c", "e"},
		map[string]string{"a": "All of a.", "a.b": "Of b.", "a.c": "", "e": ""},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestFieldRows(t *testing.T) {
	one, ten := 1.0, 10.0
	s := schema{Type: "object", Description: "All.", Required: []string{"n"}, Properties: map[string]schema{
		"n": {Type: "integer", Description: "N.", Default: 2, Minimum: &one, Maximum: &ten},
		"list": {
			Type:        "array",
			Description: "L.",
			Items: &schema{
				Type:       "object",
				Properties: map[string]schema{"x": {Type: "string", Description: "X.", Enum: []any{"a", "b"}}},
			},
		},
	}}
	got, err := fieldRows(nil, "spec", s, false)
	want := [][]string{
		{"`spec`", "object", "", "", "All."},
		{"`spec.list`", "list of object", "", "", "L."},
		{"`spec.list[].x`", "string", "", "one of `a`, `b`", "X."},
		{"`spec.n`", "integer", "`2`", "required; 1 to 10", "N."},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
	s.Properties["n"] = schema{Type: "integer"}
	if _, err := fieldRows(nil, "spec", s, false); err == nil {
		t.Error("a field without a description: no error")
	}
}
