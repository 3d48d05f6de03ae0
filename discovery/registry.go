package discovery

import (
	"cmp"
	"slices"
	"strings"
	"sync"
)

// BuiltInEndpoint is the endpoint, in a Source's ID, of a handler in this process.
const BuiltInEndpoint = "built-in"

// Source is one place that devices of a handler's name come from: the handler in
// this process, or a registered endpoint. Make one with NewSource.
type Source struct {
	// ID is `name@endpoint`: "udev@built-in", "udev@/var/lib/akri/udev.sock",
	// "udev@http://10.0.0.5:10000".
	ID string

	// Handler finds the devices. Its Name is the part of ID before the @.
	Handler Handler

	// BuiltIn is true for a handler in this process, which cannot get lost.
	BuiltIn bool

	// Unproven is true for an http:// endpoint: who has its address now may be another than the
	// handler that registered it.
	Unproven bool

	mu      sync.Mutex
	renewed chan struct{} // closed and replaced by Renew
}

// NewSource returns a source of the handler's name at an endpoint.
func NewSource(handler Handler, endpoint string) *Source {
	return &Source{
		ID:       handler.Name() + "@" + endpoint,
		Handler:  handler,
		BuiltIn:  endpoint == BuiltInEndpoint,
		Unproven: strings.HasPrefix(endpoint, "http://"),
		renewed:  make(chan struct{}),
	}
}

// Renewed returns what is closed at the endpoint's next registration: reason to
// end a backoff. Ask for it before calling Discover, so that a registration in the
// meantime is not missed. That of a built-in handler never closes.
func (s *Source) Renewed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.renewed
}

// Renew says that the endpoint has registered again. Safe for concurrent use.
func (s *Source) Renew() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.renewed)
	s.renewed = make(chan struct{})
}

// Registry holds the sources of each handler name. Its methods are safe for
// concurrent use.
type Registry struct {
	mu      sync.Mutex
	sources []*Source     // sorted; replaced, never changed
	changed chan struct{} // closed and replaced with sources
}

// NewRegistry returns a registry without sources.
func NewRegistry() *Registry {
	return &Registry{changed: make(chan struct{})}
}

// Add adds a source and reports whether it is new. One with the ID of a source
// that is there only renews that one and is dropped.
func (r *Registry) Add(source *Source) (added bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := r.index(source.ID); i >= 0 {
		r.sources[i].Renew()
		return false
	}
	sources := append(slices.Clone(r.sources), source)
	slices.SortFunc(sources, bySource)
	r.set(sources)
	return true
}

// Remove removes the source of the ID, if there is one.
func (r *Registry) Remove(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := r.index(id); i >= 0 {
		r.set(slices.Delete(slices.Clone(r.sources), i, i+1))
	}
}

// Sources returns the sources of a handler name, the built-in one first, the
// others by ID, and what is closed when there may be others.
func (r *Registry) Sources(name string) (sources []*Source, changed <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.sources {
		if s.Handler.Name() == name {
			sources = append(sources, s)
		}
	}
	return sources, r.changed
}

// Names are those under which there is a source, sorted.
func (r *Registry) Names() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var names []string
	for _, s := range r.sources {
		names = append(names, s.Handler.Name())
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (r *Registry) index(id string) int {
	return slices.IndexFunc(r.sources, func(s *Source) bool { return s.ID == id })
}

func (r *Registry) set(sources []*Source) {
	r.sources = sources
	close(r.changed)
	r.changed = make(chan struct{})
}

// bySource orders sources: built-in ones, then by ID.
func bySource(a, b *Source) int {
	if a.BuiltIn != b.BuiltIn {
		if a.BuiltIn {
			return -1
		}
		return 1
	}
	return cmp.Compare(a.ID, b.ID)
}
