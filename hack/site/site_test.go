package main

import (
	"bytes"
	"fmt"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"golang.org/x/net/html"
)

// writeSite writes the site of this tree as two versions, and returns the folder.
func writeSite(t *testing.T) string {
	t.Helper()
	out := t.TempDir()
	for _, version := range []string{"v0.1.0", "main"} {
		if err := write(os.DirFS("../.."), out, version); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// Each link of the site leads to a file of it, and to a heading that the file has; nothing is loaded from
// another host; the menu leads to all pages.
func TestLinksLead(t *testing.T) {
	files := map[string][]byte{}
	out := writeSite(t)
	err := filepath.WalkDir(out, func(file string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(out, file)
		if err == nil {
			files[filepath.ToSlash(name)], err = os.ReadFile(file)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	wrong, followed := check(files)
	for _, w := range wrong {
		t.Error(w)
	}
	if followed < 5000 {
		t.Errorf("found only %d links", followed)
	}
	for name := range files {
		if menu := files["main/index.html"]; strings.HasPrefix(name, "main/") && strings.HasSuffix(name, ".html") &&
			name != "main/index.html" &&
			!bytes.Contains(
				menu[bytes.Index(menu, []byte("<nav")):],
				fmt.Appendf(nil, `href="%s"`, strings.TrimPrefix(name, "main/")),
			) {
			t.Errorf("the menu does not lead to %s", name)
		}
	}
}

// check returns what is wrong in the files of a site, and the number of links in it.
func check(files map[string][]byte) (wrong []string, followed int) {
	ids := map[string]map[string]bool{}
	type reference struct {
		from, to string
		loads    bool
	}
	var references []reference
	for name, content := range files {
		switch path.Ext(name) {
		case ".css", ".svg":
			for _, m := range regexp.MustCompile(`(?:url\(|@import |href=)["']?([^"')]*)`).FindAllStringSubmatch(string(content), -1) {
				references = append(references, reference{name, m[1], true})
			}
		case ".html":
			ids[name] = map[string]bool{}
			doc, err := html.Parse(bytes.NewReader(content))
			if err != nil {
				wrong = append(wrong, fmt.Sprintf("%s: %v", name, err))
				continue
			}
			for n := range doc.Descendants() {
				for _, a := range n.Attr {
					switch a.Key {
					case "id":
						if ids[name][a.Val] {
							wrong = append(wrong, fmt.Sprintf("%s has the id %s twice", name, a.Val))
						}
						ids[name][a.Val] = true
					case "href", "src":
						references = append(references, reference{name, a.Val, n.Data != "a"})
					case "srcset", "data", "action", "poster", "style", "background":
						wrong = append(
							wrong,
							fmt.Sprintf("%s has the attribute %s, which this test does not know", name, a.Key),
						)
					}
				}
			}
		}
	}
	for _, r := range references {
		u, err := url.Parse(r.to)
		switch {
		case err != nil:
			wrong = append(wrong, fmt.Sprintf("%s: %v", r.from, err))
			continue
		case u.IsAbs() || u.Host != "":
			if r.loads || u.Scheme != "https" && u.Scheme != "http" {
				wrong = append(wrong, fmt.Sprintf("%s loads %s", r.from, r.to))
			}
			continue
		}
		followed++
		to := r.from
		if u.Path != "" {
			to = path.Join(path.Dir(r.from), u.Path)
		}
		if files[to] == nil {
			wrong = append(wrong, fmt.Sprintf("%s links to %s: there is no %s", r.from, r.to, to))
		} else if u.Fragment != "" && !ids[to][u.Fragment] {
			wrong = append(wrong, fmt.Sprintf("%s links to %s: there is no such heading", r.from, r.to))
		}
	}
	slices.Sort(wrong)
	return wrong, followed
}

// tree is a small tree with a page docs/a.md.
func tree(page string) fstest.MapFS {
	return fstest.MapFS{
		"README.md": {
			Data: []byte(
				"# Kubeslot\n\n## Use it\n\n| to | read |\n|---|---|\n| begin | [a](docs/a.md) |\n\n## More\n",
			),
		},
		"docs/a.md":                          {Data: []byte(page)},
		"docs/b.md":                          {Data: []byte("# B\n\n## Its part\n")},
		"examples/README.md":                 {Data: []byte("# Examples\n")},
		"examples/one/README.md":             {Data: []byte("# One\n")},
		"examples/one/one.yaml":              {Data: []byte("kind: Pod\n")},
		"LICENSE":                            {Data: []byte("Apache")},
		"kubectl-kubeslot/ui/page/theme.css": {Data: []byte(":root{}")},
		"kubectl-kubeslot/ui/page/icon.svg":  {Data: []byte("<svg/>")},
	}
}

// The check finds what is wrong in a page. A link to a file that is not there is refused when the site is made.
func TestWrongPages(t *testing.T) {
	for page, want := range map[string]string{
		"# A\n[b](b.md#its-part) [c](../LICENSE) [d](#a) [e](https://example.com) [f](../kubectl-kubeslot/ui)": "",
		"# A\n[b](c.md)":                        "docs/a.md: link to c.md: open docs/c.md: file does not exist",
		"# A\n[b](b.md#other)":                  "docs/a.html links to ../docs/b.html#other: there is no such heading",
		"# A\n[b](#other)":                      "docs/a.html links to #other: there is no such heading",
		"# A\n![b](https://example.com/b.png)":  "docs/a.html loads https://example.com/b.png",
		"# A\n![b](//example.com/b.png)":        "docs/a.html loads //example.com/b.png",
		"# A\n<script src=https://example.com>": "",
		"No heading":                            "docs/a.md: the page does not begin with a heading of level 1",
	} {
		files, err := build(tree(page), "main")
		got := fmt.Sprint(err)
		if err == nil {
			files["../index.html"] = []byte("<p>")
			wrong, _ := check(files)
			got = strings.Join(wrong, "\n")
		}
		if got != want {
			t.Errorf("%q: got %q, want %q", page, got, want)
		}
	}
}

// An example's page shows the YAML that one applies, and a file that is no page has a copy.
func TestFilesBesidePages(t *testing.T) {
	files, err := build(tree("# A\n[c](../LICENSE)"), "main")
	if err != nil {
		t.Fatal(err)
	}
	if page := string(files["examples/one/index.html"]); !strings.Contains(page, "kind: Pod") {
		t.Errorf("no YAML in %s", page)
	}
	if string(files["LICENSE.txt"]) != "Apache" {
		t.Errorf("LICENSE.txt is %q", files["LICENSE.txt"])
	}
}

// Headings have the anchors that they have on GitHub, where links to them were written.
func TestAnchors(t *testing.T) {
	for heading, want := range map[string]string{
		"When it does not come up":                     "when-it-does-not-come-up",
		"`releaseUnreachableAfter`: after a time":      "releaseunreachableafter-after-a-time",
		"What of [the UI](ui.md)?":                     "what-of-the-ui",
		"CPU, memory & `a_b`":                          "cpu-memory--a_b",
		"See who holds which slot: `kubectl kubeslot`": "see-who-holds-which-slot-kubectl-kubeslot",
	} {
		if got := string(anchors{}.Generate([]byte(heading), 0)); got != want {
			t.Errorf("%q: got %q, want %q", heading, got, want)
		}
	}
	a := anchors{}
	id := func() []byte { return a.Generate([]byte("A"), 0) }
	if got := fmt.Sprintf("%s %s %s", id(), id(), id()); got != "a a-1 a-2" {
		t.Errorf("headings of one name: %s", got)
	}
}

// The index has the newest version first. A version is written anew without what was there, and beside others.
func TestVersions(t *testing.T) {
	out := t.TempDir()
	small := tree("# A")
	for _, version := range []string{"v0.9.0", "main", "v0.10.0-rc.1", "v0.10.0"} {
		if err := write(small, out, version); err != nil {
			t.Fatal(err)
		}
	}
	delete(small, "docs/b.md")
	if err := write(small, out, "main"); err != nil {
		t.Fatal(err)
	}
	index, err := os.ReadFile(filepath.Join(out, "index.html"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range regexp.MustCompile(`<li><a href="([^/]*)/index.html">`).FindAllStringSubmatch(string(index), -1) {
		got = append(got, m[1])
	}
	if want := []string{"v0.10.0", "v0.10.0-rc.1", "v0.9.0", "main"}; !slices.Equal(got, want) {
		t.Errorf("versions %v, want %v", got, want)
	}
	if _, err := os.Stat(filepath.Join(out, "main/docs/b.html")); !os.IsNotExist(err) {
		t.Errorf("a page that is gone: %v", err)
	}
	if err := write(small, out, "../elsewhere"); err == nil {
		t.Error("a version outside of the folder was taken")
	}
}
