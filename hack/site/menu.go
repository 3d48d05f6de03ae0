package main

import (
	"errors"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

// group is a part of the menu.
type group struct {
	Title   string
	Entries []entry
}

// entry is a page in the menu, or a heading of the page that is shown.
type entry struct {
	Title, URL string
	Current    bool
	Headings   []entry
}

var (
	useIt = regexp.MustCompile(`(?s)\n## Use it\n(.*?)\n## `)
	row   = regexp.MustCompile(`(?m)^\| ([^|]+) \|(.*)\|$`)
	inRow = regexp.MustCompile(`\[([^]]+)\]\(([^)#]+)`)
)

// readMenu returns the menu: a group for each row of README's table below "Use it", with the pages that the
// row links to, and a group for each folder with other pages.
func readMenu(pages map[string]*page) ([]group, error) {
	table := useIt.FindSubmatch(pages["README.md"].text)
	if table == nil {
		return nil, errors.New(`README.md has no part "Use it", of which the menu is made`)
	}
	var menu []group
	listed := map[string]bool{"README.md": true}
	for _, r := range row.FindAllStringSubmatch(string(table[1]), -1) {
		g := group{Title: r[1]}
		for _, l := range inRow.FindAllStringSubmatch(r[2], -1) {
			if p := pages[l[2]]; p != nil && !listed[l[2]] {
				listed[l[2]] = true
				g.Entries = append(g.Entries, entry{Title: l[1], URL: p.url})
			}
		}
		if len(g.Entries) > 0 { // the table's head has none
			menu = append(menu, g)
		}
	}
	others := map[string][]entry{}
	for _, source := range slices.Sorted(maps.Keys(pages)) {
		if p := pages[source]; !listed[source] {
			folder := path.Dir(strings.TrimSuffix(source, "/README.md"))
			others[folder] = append(others[folder], entry{Title: p.title(), URL: p.url})
		}
	}
	for _, folder := range slices.Sorted(maps.Keys(others)) {
		title := folder + "/"
		if folder == "." {
			title = "the project"
		}
		menu = append(menu, group{Title: title, Entries: others[folder]})
	}
	return menu, nil
}

// seenFrom returns the menu as a page shows it: with links from there, and with the page's headings.
func seenFrom(menu []group, p *page) []group {
	seen := make([]group, len(menu))
	for i, g := range menu {
		seen[i].Title = g.Title
		for _, e := range g.Entries {
			if e.Current = e.URL == p.url; e.Current {
				for _, s := range p.sections {
					if s.level == 2 {
						e.Headings = append(e.Headings, entry{Title: s.Heading, URL: p.root() + s.URL})
					}
				}
			}
			e.URL = p.root() + e.URL
			seen[i].Entries = append(seen[i].Entries, e)
		}
	}
	return seen
}
