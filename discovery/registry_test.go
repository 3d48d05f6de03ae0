package discovery

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
)

type namedHandler string

func (h namedHandler) Name() string { return string(h) }

func (h namedHandler) Discover(context.Context, Request, func(Result)) error { return nil }

func ids(sources []*Source) []string {
	var all []string
	for _, s := range sources {
		all = append(all, s.ID)
	}
	return all
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestSourcesAreSortedWithTheBuiltInOneFirst(t *testing.T) {
	r := NewRegistry()
	for _, endpoint := range []string{"http://10.0.0.5:10000", BuiltInEndpoint, "/var/lib/akri/udev.sock"} {
		if !r.Add(NewSource(namedHandler("udev"), endpoint)) {
			t.Errorf("Add(%s) = false for a new source", endpoint)
		}
	}
	r.Add(NewSource(namedHandler("onvif"), BuiltInEndpoint))

	sources, _ := r.Sources("udev")
	want := []string{"udev@built-in", "udev@/var/lib/akri/udev.sock", "udev@http://10.0.0.5:10000"}
	if got := ids(sources); !slices.Equal(got, want) {
		t.Errorf("Sources(udev) = %q, want %q", got, want)
	}
	r.Remove("onvif@built-in")
	r.Sources("onvif") // asked for, and not there
	if got := r.Names(); !slices.Equal(got, []string{"udev"}) {
		t.Errorf("Names() = %q, want udev alone", got)
	}
	if sources, _ := r.Sources("opcua"); len(sources) != 0 {
		t.Errorf("Sources(opcua) = %q, want none", ids(sources))
	}
}

func TestChangesAreTold(t *testing.T) {
	r := NewRegistry()
	_, none := r.Sources("udev") // a name that has no source yet
	r.Add(NewSource(namedHandler("udev"), "/a.sock"))
	if !closed(none) {
		t.Error("the first source of udev was not told")
	}
	before, changed := r.Sources("udev")
	r.Add(NewSource(namedHandler("udev"), "/b.sock"))
	if !closed(changed) {
		t.Error("the second source of udev was not told")
	}
	if len(before) != 1 {
		t.Errorf("a slice that was returned before became %q", ids(before))
	}
	_, changed = r.Sources("udev")
	r.Remove("udev@/c.sock")
	if closed(changed) {
		t.Error("told of the removal of a source that was not there")
	}
	r.Remove("udev@/a.sock")
	if !closed(changed) {
		t.Error("the removal was not told")
	}
	sources, changed := r.Sources("udev")
	if got := ids(sources); !slices.Equal(got, []string{"udev@/b.sock"}) {
		t.Errorf("Sources(udev) = %q after a removal", got)
	}
	r.Remove("udev@/b.sock")
	if !closed(changed) {
		t.Error("the removal of the last source was not told")
	}
	if sources, _ := r.Sources("udev"); len(sources) != 0 {
		t.Errorf("Sources(udev) = %q, want none", ids(sources))
	}
}

// Who has the sources from before reads them while others come and go.
func TestWhatWasReturnedStays(t *testing.T) {
	r := NewRegistry()
	for _, endpoint := range []string{"/d.sock", "/e.sock", "/f.sock"} { // leaves room for one more in the slice
		r.Add(NewSource(namedHandler("udev"), endpoint))
	}
	before, _ := r.Sources("udev")
	want := ids(before)
	r.Add(NewSource(namedHandler("udev"), "/c.sock"))
	r.Remove("udev@/d.sock")
	if got := ids(before); !slices.Equal(got, want) {
		t.Errorf("the sources that were returned before became %q, of %q", got, want)
	}
}

func TestTheSameAgainOnlyRenews(t *testing.T) {
	r := NewRegistry()
	first := NewSource(namedHandler("udev"), "/a.sock")
	r.Add(first)
	_, changed := r.Sources("udev")
	renewed := first.Renewed()

	if r.Add(NewSource(namedHandler("udev"), "/a.sock")) {
		t.Error("Add() = true for a source that is there")
	}
	if closed(changed) {
		t.Error("a registration that was there restarts what runs")
	}
	if !closed(renewed) {
		t.Error("the source was not renewed")
	}
	if closed(first.Renewed()) {
		t.Error("the next registration is told before it comes")
	}
	if sources, _ := r.Sources("udev"); len(sources) != 1 || sources[0] != first {
		t.Errorf("Sources(udev) = %v, want the first one alone", sources)
	}
}

// Whoever follows the sources sees the last state, whatever comes in between.
func TestConcurrentUse(t *testing.T) {
	r := NewRegistry()
	const writers, each = 8, 50
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				s := NewSource(namedHandler("udev"), fmt.Sprintf("/%d-%d.sock", w, i))
				r.Add(s)
				r.Add(s)
				if i%2 == 0 {
					r.Remove(s.ID)
				}
			}
		})
	}
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		for {
			sources, changed := r.Sources("udev")
			if !slices.IsSortedFunc(sources, bySource) {
				t.Errorf("not sorted: %q", ids(sources))
			}
			if slices.ContainsFunc(sources, func(s *Source) bool { return s.ID == "udev@last" }) {
				return
			}
			<-changed
		}
	}()
	wg.Wait()
	r.Add(NewSource(namedHandler("udev"), "last"))
	<-followed
	if sources, _ := r.Sources("udev"); len(sources) != writers*each/2+1 {
		t.Errorf("%d sources are left, want %d", len(sources), writers*each/2+1)
	}
}
