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
	mu    sync.Mutex
	names map[string]*named
}

// named is what a Registry knows of one handler name.
type named struct {
	sources []*Source     // sorted; replaced, never changed
	changed chan struct{} // closed and replaced when sources is; nil until somebody asks
}

// NewRegistry returns a registry without sources.
func NewRegistry() *Registry {
	return &Registry{names: map[string]*named{}}
}

// Add adds a source and reports whether it is new. One with the ID of a source
// that is there only renews that one and is dropped.
func (r *Registry) Add(source *Source) (added bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.named(source.Handler.Name())
	if i := slices.IndexFunc(n.sources, func(s *Source) bool { return s.ID == source.ID }); i >= 0 {
		n.sources[i].Renew()
		return false
	}
	sources := append(slices.Clone(n.sources), source)
	slices.SortFunc(sources, bySource)
	n.set(sources)
	return true
}

// Remove removes the source of the ID, if there is one.
func (r *Registry) Remove(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, n := range r.names {
		if i := slices.IndexFunc(n.sources, func(s *Source) bool { return s.ID == id }); i >= 0 {
			n.set(slices.Delete(slices.Clone(n.sources), i, i+1))
			if len(n.sources) == 0 {
				delete(r.names, name) // who waits has been told, and asks again
			}
			return
		}
	}
}

// Sources returns the sources of a handler name, the built-in one first, the
// others by ID, and what is closed when there are others. The slice is the
// caller's to read, not to change.
func (r *Registry) Sources(name string) (sources []*Source, changed <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.named(name)
	if n.changed == nil {
		n.changed = make(chan struct{})
	}
	return n.sources, n.changed
}

// Names are those under which there is a source, sorted.
func (r *Registry) Names() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var names []string
	for name, n := range r.names {
		if len(n.sources) > 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// named returns what is known of the name. r.mu must be held.
func (r *Registry) named(name string) *named {
	n := r.names[name]
	if n == nil {
		n = &named{}
		r.names[name] = n
	}
	return n
}

func (n *named) set(sources []*Source) {
	n.sources = sources
	if n.changed != nil {
		close(n.changed)
		n.changed = nil
	}
}

// bySource orders sources: the built-in one, then by ID.
func bySource(a, b *Source) int {
	if a.BuiltIn != b.BuiltIn {
		if a.BuiltIn {
			return -1
		}
		return 1
	}
	return cmp.Compare(a.ID, b.ID)
}
