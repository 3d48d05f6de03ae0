// Package opcua is Akri's opcua discovery handler: it finds OPC UA servers by asking
// the URLs of its Configuration, each of a server or of a discovery server, for the
// servers they know.
//
//   - details.go: what a Configuration asks for
//   - source.go, standing.go: one URL, asked again and again
//   - devices.go, resolver.go, named.go: the devices that an answer means
//   - client.go, frame.go, requests.go, messages.go, reader.go, status.go: OPC UA's binary
//     protocol
//   - target.go: its URLs
//
// gopcua is not used, but to compare with in tests. A hostile server can end the process
// with its client: the buffers of its own goroutine, whose panics nobody recovers, have the
// size that the server wants (v0.8.0: one of 4 bytes is enough), its decoder takes memory
// for as many elements as a message says it has, and diagnostics may be as deep as a
// message is long. To encode five requests its 70,000 lines are too many.
package opcua

import (
	"cmp"
	"context"
	"maps"
	"net"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/kubeslot/kubeslot/discovery"
)

const (
	// Name is what Configurations select the handler by.
	Name = "opcua"

	// DefaultInterval is Akri's.
	DefaultInterval = 10 * time.Second

	// askTimeout is for all that is asked of a server in one round, and roundFactor how many times as
	// long the round may take with all that its answer has one ask.
	askTimeout  = 5 * time.Second
	roundFactor = 2

	// firstReport is how long the first report waits for URLs that have neither
	// answered nor been given up. What it lacks is gone: while this handler was not
	// running, such a URL's devices may have been there all the time. Each has been
	// asked once in any case.
	firstReport = 5 * time.Second

	// learnedFactor is how many times as long, again, it waits for the servers that others
	// named: as long as it takes to ask 1000 that do not answer.
	learnedFactor = 6

	// asksAtOnce bounds the URLs of a Configuration that are asked at a time, and what their answers
	// take of memory. As many are of listed URLs that were given up, and of servers that others named:
	// these delay no listed URL that answers.
	asksAtOnce = 100
)

// Handler is the handler. Its zero value is ready for use.
type Handler struct {
	// Interval is the time between two requests to each URL; DefaultInterval when it is
	// not positive.
	Interval time.Duration

	// For tests; the constants, net's and answersAs when not set.
	askTimeout, firstReport time.Duration
	answers                 probe
	lookup                  func(ctx context.Context, host string) ([]string, error)
}

var _ discovery.Sharer = (*Handler)(nil)

// Name implements discovery.Handler.
func (*Handler) Name() string { return Name }

// Shared implements discovery.Sharer: all nodes that reach a server find it.
func (*Handler) Shared() bool { return true }

// Discover implements discovery.Handler. It fails at once on bad details, and otherwise
// only when ctx ends. Each URL has a goroutine: one that does not answer delays no other,
// beyond firstReport.
func (h *Handler) Discover(ctx context.Context, request discovery.Request, report func(discovery.Result)) error {
	p, err := parse(request)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	interval := h.Interval
	if interval <= 0 {
		interval = DefaultInterval
	}
	r := &run{
		plan: p, request: request, interval: interval, timeout: cmp.Or(h.askTimeout, askTimeout),
		lookup: h.lookup, answers: h.answers,
		asking: make(places, asksAtOnce), givenUp: make(places, asksAtOnce), named: make(places, asksAtOnce),
		views: make(chan view), sources: map[string]*running{},
	}
	if r.lookup == nil {
		r.lookup = net.DefaultResolver.LookupHost
	}
	if r.answers == nil {
		r.answers = answersAs
	}
	defer r.ended.Wait()
	defer cancel()
	for _, t := range p.targets {
		r.start(ctx, t, false)
	}
	first := cmp.Or(h.firstReport, firstReport)
	overdue := time.NewTimer(first)
	defer overdue.Stop()
	reported, changed := false, true
	report = discovery.Changes(report)
	for {
		if changed && (reported || r.settled()) {
			reported = true
			report(discovery.Result{Devices: r.devices(), Shared: true})
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-overdue.C:
			r.late, r.tooLate, changed = true, r.late, true
			overdue.Reset(learnedFactor * first)
		case v := <-r.views:
			changed = r.take(ctx, v)
		}
	}
}

// run is one Discover. Its goroutine alone uses the maps.
type run struct {
	plan
	request  discovery.Request
	interval time.Duration
	timeout  time.Duration // of a round's requests
	lookup   func(ctx context.Context, host string) ([]string, error)
	answers  probe
	// These are of listed URLs, those of them that were given up, and servers that others named.
	asking, givenUp, named places

	views   chan view
	sources map[string]*running // by URL
	late    bool                // firstReport is over
	tooLate bool                // learnedFactor times as long, too
	ended   sync.WaitGroup
}

// running is a source and the last of its views.
type running struct {
	*source
	view view
	stop context.CancelFunc
}

// start asks a URL: of the details, or learned from one of those.
func (r *run) start(ctx context.Context, at target, learned bool) {
	ctx, stop := context.WithCancel(ctx)
	s := &running{stop: stop, source: &source{
		at: at, learned: learned, onNetwork: r.onNetwork && !learned, names: r.names, interval: r.interval,
		timeout: r.timeout, resolver: resolver{lookup: r.lookup},
		answers: r.answers, asking: r.asking, givenUp: r.givenUp, views: r.views,
	}}
	if learned {
		s.asking, s.givenUp = r.named, r.named
	}
	r.sources[at.url] = s
	r.ended.Go(func() { s.run(ctx) })
}

// take keeps a view, and returns whether it is another than before: only then is it worth looking at
// what all others see. The source may be one that has been stopped meanwhile.
func (r *run) take(ctx context.Context, v view) (changed bool) {
	s := r.sources[v.of.at.url]
	if s == nil || s.source != v.of {
		return false
	}
	changed = s.view.of == nil || s.view.settled != v.settled || !reflect.DeepEqual(s.view.found, v.found)
	s.view = v
	for _, warning := range v.warnings {
		r.request.Warnf("%s: %s", Name, warning)
	}
	if changed && r.onNetwork && !s.learned {
		r.follow(ctx)
	}
	return changed
}

// follow asks the servers that are known from a network themselves, since only they say
// what they are, and no others.
func (r *run) follow(ctx context.Context) {
	want := map[string]target{}
	for _, t := range r.targets {
		for _, learned := range r.sources[t.url].view.learned {
			if len(want) < maxRecords {
				want[learned.url] = learned
			}
		}
	}
	for url, s := range r.sources {
		if _, wanted := want[url]; s.learned && !wanted {
			s.stop()
			delete(r.sources, url)
		}
	}
	for url, t := range want {
		if r.sources[url] == nil {
			r.start(ctx, t, true)
		}
	}
}

// settled reports whether each source has answered or is given up, or when it is late,
// has been asked at least. When it is too late, servers that others named do not count: a
// discovery server may name others each time.
func (r *run) settled() bool {
	for _, s := range r.sources {
		if asked := s.view.of != nil; !s.view.settled && !(r.late && asked) && !(r.tooLate && s.learned) {
			return false
		}
	}
	return true
}

// devices returns what all sources see, sorted by ID. Of a server that several see, the
// details' first URL has it.
func (r *run) devices() []discovery.Device {
	byID := map[string]discovery.Device{}
	add := func(s *running) {
		for _, d := range s.view.devices {
			if _, there := byID[d.ID]; !there {
				byID[d.ID] = d
			}
		}
	}
	for _, t := range r.targets {
		add(r.sources[t.url])
	}
	for _, url := range slices.Sorted(maps.Keys(r.sources)) {
		if r.sources[url].learned {
			add(r.sources[url])
		}
	}
	return discovery.ByID(byID)
}
