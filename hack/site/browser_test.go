package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/kubeslot/kubeslot/kubectl-kubeslot/ui/browser"
)

// serve serves the site of this tree, and returns its folder and address.
func serve(t *testing.T) (out, address string) {
	t.Helper()
	out = writeSite(t)
	mux := http.NewServeMux()
	mux.Handle("/", http.FileServer(http.Dir(out)))
	mux.HandleFunc("/favicon.ico", func(http.ResponseWriter, *http.Request) {}) // asked for of what is no page
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return out, server.URL
}

// scheme has the page believe that the system is light or dark.
func scheme(b *browser.Tab, name string) {
	browser.Call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}})
}

// No page is wider than the screen, of a phone or a desk: what is wide scrolls by itself. The browser loads
// nothing from another host, and refuses nothing that a page wants.
func TestNoPageIsWiderThanTheScreen(t *testing.T) {
	out, address := serve(t)
	pages := []string{address + "/index.html"}
	err := filepath.WalkDir(filepath.Join(out, "main"), func(file string, _ os.DirEntry, err error) error {
		if err == nil && filepath.Ext(file) == ".html" {
			pages = append(pages, address+filepath.ToSlash(strings.TrimPrefix(file, out)))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	b := browser.Open(t, address+"/index.html", 375, 667)
	look := func(page string, width int64) {
		b.Do(chromedp.Navigate(page))
		if wide := browser.Eval[int64](b, "document.documentElement.scrollWidth"); wide > width {
			t.Errorf("%s is %d pixels wide on a screen of %d", page, wide, width)
		}
	}
	for _, page := range pages {
		look(page, 375)
	}
	b.Do(chromedp.EmulateViewport(1280, 720))
	for _, page := range []string{"/index.html", "/main/index.html", "/main/docs/performance.html", "/main/docs/reference/crds.html"} {
		look(address+page, 1280)
	}
}

// A page is light or dark as the system is, and so is each drawing.
func TestLightAndDark(t *testing.T) {
	out, address := serve(t)
	drawings, err := filepath.Glob(filepath.Join(out, "main/docs/pictures/*.svg"))
	if err != nil || len(drawings) == 0 {
		t.Fatalf("the site has no drawings: %v", err)
	}
	b := browser.Open(t, address+"/main/index.html", 1280, 720)
	for name, want := range map[string]string{"light": "rgb(245, 246, 248) rgb(24, 32, 44)", "dark": "rgb(15, 19, 24) rgb(230, 234, 240)"} {
		scheme(b, name)
		const colors = "(s => s.backgroundColor + ' ' + s.color)(getComputedStyle(document.body))"
		if got := browser.Eval[string](b, colors); got != want {
			t.Errorf("%s: background and text are %s, want %s", name, got, want)
		}
	}
	for _, file := range drawings {
		b.Do(chromedp.Navigate(address + filepath.ToSlash(strings.TrimPrefix(file, out))))
		for name, want := range map[string]string{"light": "rgb(255, 255, 255) rgb(24, 32, 44)", "dark": "rgb(23, 28, 35) rgb(230, 234, 240)"} {
			scheme(b, name)
			const fills = "['.back', 'text:not(.small)']" +
				".map(s => getComputedStyle(document.querySelector(s)).fill).join(' ')"
			if got := browser.Eval[string](b, fills); got != want {
				t.Errorf("%s, %s: background and text are %s, want %s", filepath.Base(file), name, got, want)
			}
		}
	}
}

// begin goes to the search field by its key, once the page can search.
func begin(b *browser.Tab) {
	b.Helper()
	b.AwaitTrue("document.readyState === 'complete' && document.getElementById('search').hidden === false")
	b.Press("/")
	b.AwaitTrue("document.activeElement.id === 'search'")
}

// Search finds a section, shows the words in its text, and leads there: by the keyboard, from each folder, on
// a server and on a disk.
func TestSearch(t *testing.T) {
	out, address := serve(t)
	for _, root := range []string{address, "file://" + out} {
		b := browser.Open(t, root+"/main/index.html", 1280, 720)
		for _, s := range []struct{ words, heading, page string }{
			{"fail closed", "Fail closed", "/main/docs/nri.html#fail-closed"},
			{"slotclaim spec", "SlotClaim", "/main/docs/reference/crds.html#slotclaim"},
		} {
			begin(b)
			b.Search(s.words)
			b.Await("#found li:first-child", s.heading)
			b.Press("\r")
			b.AwaitTrue(fmt.Sprintf("location.href.endsWith(%q)", s.page))
		}
		begin(b)
		b.Search("uniqueScope: Pod")
		b.Await("#found mark", "uniqueScope")
		b.Search("(default)")
		b.Await("#found mark", "(default)")
		b.Search("nosuchword")
		b.Await("#found [role=status]", "Nothing has all of these words")
		b.Press("\x1b")
		b.AwaitTrue("document.getElementById('found').hidden")
	}
}

// TestPictures takes the pictures of docs/testing.md where KUBESLOT_PICTURES names a folder.
func TestPictures(t *testing.T) {
	if os.Getenv("KUBESLOT_PICTURES") == "" {
		t.Skip("KUBESLOT_PICTURES names no folder")
	}
	_, address := serve(t)
	for _, width := range []int64{375, 1280} {
		for _, name := range []string{"light", "dark"} {
			b := browser.Open(t, address+"/main/docs/concepts.html", width, 640)
			scheme(b, name)
			if width == 1280 && name == "dark" {
				begin(b)
				b.Search("shared camera")
				b.Await("#found li:first-child", "camera")
			}
			b.Picture(fmt.Sprintf("site-%d-%s", width, name))
		}
	}
}
