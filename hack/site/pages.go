package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html"
	"html/template"
	"io/fs"
	"maps"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
)

// markdown is GitHub's, without HTML.
var markdown = goldmark.New(
	goldmark.WithExtensions(extension.GFM),
	goldmark.WithParserOptions(parser.WithAutoHeadingID()),
)

// page is a Markdown file of the tree.
type page struct {
	source   string // its path in the tree
	url      string // its path in the site
	text     []byte
	doc      ast.Node
	sections []section // the first has the page's title
}

// section is a heading and the text up to the next one, in which search looks.
type section struct {
	URL     string `json:"url"`
	Page    string `json:"page"`
	Heading string `json:"heading"`
	Text    string `json:"text"`
	level   int
}

func (p *page) title() string { return p.sections[0].Heading }

// root leads from the page to the folder of its version.
func (p *page) root() string { return strings.Repeat("../", strings.Count(p.url, "/")) }

// site is what a version's site is made of.
type site struct {
	tree  fs.FS
	pages map[string]*page  // by their paths in the tree
	files map[string][]byte // by their paths in the site
}

// build returns the files of a version's site by their paths in it.
func build(tree fs.FS, version string) (map[string][]byte, error) {
	s := site{tree, map[string]*page{}, map[string][]byte{}}
	roots, err := fs.Glob(tree, "*.md")
	if err != nil {
		return nil, err
	}
	for _, root := range append(roots, "docs", "examples") {
		if err := fs.WalkDir(tree, root, s.read); err != nil {
			return nil, err
		}
	}
	menu, err := readMenu(s.pages)
	if err != nil {
		return nil, err
	}
	var sections []section
	for _, source := range slices.Sorted(maps.Keys(s.pages)) {
		p := s.pages[source]
		body, err := s.render(p)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", source, err)
		}
		s.files[p.url], err = view{
			Title:   p.title(),
			Version: version,
			Root:    p.root(),
			Menu:    seenFrom(menu, p),
			Body:    body,
		}.html()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", source, err)
		}
		sections = append(sections, p.sections...)
	}
	list, err := json.Marshal(sections)
	if err != nil {
		return nil, err
	}
	// A script, because a page that is read from a disk may load scripts, and no JSON.
	s.files["sections.js"] = fmt.Appendf(nil, "const sections = %s;\n", list)
	for _, name := range []string{"style.css", "search.js"} {
		if s.files[name], err = own.ReadFile(name); err != nil {
			return nil, err
		}
	}
	for _, name := range []string{"theme.css", "icon.svg"} {
		if s.files[name], err = fs.ReadFile(tree, "kubectl-kubeslot/ui/page/"+name); err != nil {
			return nil, err
		}
	}
	return s.files, nil
}

// read reads a page. That of an example has the example's YAML, too.
func (s *site) read(source string, _ fs.DirEntry, err error) error {
	if err != nil || path.Ext(source) != ".md" {
		return err
	}
	p := &page{source: source, url: strings.TrimSuffix(source, ".md") + ".html"}
	if path.Base(source) == "README.md" {
		p.url = path.Join(path.Dir(source), "index.html")
	}
	files := []string{source}
	if strings.HasPrefix(source, "examples/") {
		manifests, err := fs.Glob(s.tree, path.Dir(source)+"/*.yaml")
		if err != nil {
			return err
		}
		files = append(files, manifests...)
	}
	for _, file := range files {
		content, err := fs.ReadFile(s.tree, file)
		if err != nil {
			return err
		}
		if file != source {
			content = fmt.Appendf(nil, "\n## %s\n\n```yaml\n%s\n```\n", path.Base(file), bytes.TrimSpace(content))
		}
		p.text = append(p.text, content...)
	}
	p.parse()
	if len(p.sections) == 0 || p.sections[0].level != 1 {
		return fmt.Errorf("%s: the page does not begin with a heading of level 1", source)
	}
	s.pages[source] = p
	return nil
}

func (p *page) parse() {
	p.doc = markdown.Parser().
		Parse(text.NewReader(p.text), parser.WithContext(parser.NewContext(parser.WithIDs(anchors{}))))
	for n := p.doc.FirstChild(); n != nil; n = n.NextSibling() {
		if h, is := n.(*ast.Heading); is {
			id, _ := h.AttributeString("id")
			p.sections = append(
				p.sections,
				section{URL: fmt.Sprintf("%s#%s", p.url, id), Heading: p.plain(h), level: h.Level},
			)
		} else if len(p.sections) > 0 {
			p.sections[len(p.sections)-1].Text += p.plain(n) + " "
		}
	}
	for i := range p.sections {
		p.sections[i].Page = p.title()
	}
}

var tag = regexp.MustCompile(`<[^>]*>`)

// plain returns the text of a part of the page.
func (p *page) plain(part ast.Node) string {
	var b strings.Builder
	markdown.Renderer().Render(&b, p.text, part) // a Builder has no errors
	return strings.Join(strings.Fields(html.UnescapeString(tag.ReplaceAllString(b.String(), ""))), " ")
}

// render returns the page as HTML.
func (s *site) render(p *page) (template.HTML, error) {
	err := ast.Walk(p.doc, func(n ast.Node, entering bool) (_ ast.WalkStatus, err error) {
		switch n := n.(type) {
		case *ast.Link:
			if entering {
				n.Destination, err = s.follow(p, n.Destination)
			}
		case *ast.Image:
			if entering {
				n.Destination, err = s.follow(p, n.Destination)
			}
		}
		return ast.WalkContinue, err
	})
	if err != nil {
		return "", err
	}
	var b bytes.Buffer
	if err := markdown.Renderer().Render(&b, p.text, p.doc); err != nil {
		return "", err
	}
	// Wide tables scroll by themselves.
	tables := strings.NewReplacer("<table>", `<div class="table"><table>`, "</table>", "</table></div>")
	return template.HTML(tables.Replace(b.String())), nil
}

// follow returns where a link of the page leads in the site: to a page, to a copy of another file, or to a
// list of a directory's files.
func (s *site) follow(p *page, link []byte) ([]byte, error) {
	to, err := url.Parse(string(link))
	if err != nil || to.IsAbs() || to.Host != "" || to.Path == "" {
		return link, err
	}
	file := path.Join(path.Dir(p.source), to.Path)
	if linked := s.pages[file]; linked != nil {
		file = linked.url
	} else {
		content, err := fs.ReadFile(s.tree, file)
		if names, _ := fs.Glob(s.tree, file+"/*"); len(names) > 0 {
			content, err = []byte(strings.Join(names, "\n")), nil
		}
		if err != nil {
			return nil, fmt.Errorf("link to %s: %w", link, err)
		}
		if ext := path.Ext(file); ext != ".png" && ext != ".svg" {
			file += ".txt" // which any server and browser shows
		}
		s.files[file] = content
	}
	to.Path = p.root() + file
	return []byte(to.String()), nil
}

// anchors names the headings of a page as GitHub does, and counts those of a name.
type anchors map[string]int

var (
	linkInHeading = regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`)
	notInAnchor   = regexp.MustCompile(`[^\pL\pN _-]`)
)

// Generate implements [parser.IDs].
func (a anchors) Generate(heading []byte, _ ast.NodeKind) []byte {
	id := strings.ToLower(linkInHeading.ReplaceAllString(string(heading), "$1"))
	id = strings.ReplaceAll(strings.TrimSpace(notInAnchor.ReplaceAllString(id, "")), " ", "-")
	a[id]++
	if n := a[id]; n > 1 {
		return fmt.Appendf(nil, "%s-%d", id, n-1)
	}
	return []byte(id)
}

// Put implements [parser.IDs].
func (anchors) Put([]byte) {}
