// Command site makes a static site of docs/ and examples/, as they are, and of the pages beside README:
//
//	go run ./hack/site [-version v0.2.0] [-o _output/site]
//
// Each version has a folder, and an index lists the folders. The site needs no server, so it can be read
// from a disk. It loads nothing from other hosts; each page's Content-Security-Policy says so, too.
package main

import (
	"bytes"
	"embed"
	"flag"
	"fmt"
	"html/template"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
)

// own are the site's own files. Colours and icon are those of the page of kubectl-kubeslot/ui.
//
//go:embed page.html style.css search.js
var own embed.FS

var layout = template.Must(template.ParseFS(own, "page.html"))

func main() {
	name := flag.String("version", "main", "version of the pages, which is their folder's name")
	out := flag.String("o", "_output/site", "folder of all versions")
	flag.Parse()
	if flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := write(os.DirFS("."), *out, *name); err != nil {
		fmt.Fprintln(os.Stderr, "site:", err)
		os.Exit(1)
	}
	fmt.Println(filepath.Join(*out, *name, "index.html"))
}

// folderName is what a version may be called.
var folderName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._+-]*$`)

// write writes the site of the tree's pages into out/<name>, in place of an older one, and out/index.html.
func write(tree fs.FS, out, name string) error {
	if !folderName.MatchString(name) {
		return fmt.Errorf("version %q cannot be the name of a folder", name)
	}
	files, err := build(tree, name)
	if err != nil {
		return err
	}
	folder := filepath.Join(out, name)
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	for file, content := range files {
		if err := writeFile(filepath.Join(folder, filepath.FromSlash(file)), content); err != nil {
			return err
		}
	}
	names, err := fs.Glob(os.DirFS(out), "*/index.html")
	if err != nil {
		return err
	}
	for i := range names {
		names[i] = path.Dir(names[i])
	}
	index, err := versions(names)
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(out, "index.html"), index)
}

func writeFile(file string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, content, 0o644)
}

// view is what page.html shows.
type view struct {
	Title, Version string
	Root           string // from the page to the folder of its version
	Menu           []group
	Body           template.HTML
}

func (v view) html() ([]byte, error) {
	var b bytes.Buffer
	err := layout.Execute(&b, v)
	return b.Bytes(), err
}

// versions returns the page that lists versions, the newest first, and last what is no release. It has the
// looks and the search of the first.
func versions(names []string) ([]byte, error) {
	number := func(name string) *version.Version {
		if v, err := version.ParseSemantic(name); err == nil {
			return v
		}
		return version.MustParseSemantic("0.0.0")
	}
	slices.SortFunc(names, func(a, b string) int {
		switch one, other := number(a), number(b); {
		case one.LessThan(other):
			return 1
		case other.LessThan(one):
			return -1
		}
		return strings.Compare(a, b)
	})
	var list strings.Builder
	for _, name := range names {
		fmt.Fprintf(&list, `<li><a href="%s/index.html">%[1]s</a></li>`, name)
	}
	body := template.HTML("<h1>Versions of these pages</h1>\n<ul>" + list.String() + "</ul>")
	return view{Title: "Versions", Version: names[0], Root: names[0] + "/", Body: body}.html()
}
