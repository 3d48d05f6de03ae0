package mdns

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/discovery/netif"
	"github.com/kubeslot/kubeslot/wake"
)

const (
	// rescanDelay is how long to wait after a change of interfaces for others.
	rescanDelay = 100 * time.Millisecond

	// rescanInterval is how often to look at the interfaces though nothing says that
	// they changed: sockets that could not be opened are tried again.
	rescanInterval = 30 * time.Second

	maxWarnings = 16
)

// browser keeps a cache up to date with the network.
type browser struct {
	logger   klog.Logger
	patterns []string // of interfaces

	cancel context.CancelFunc
	done   sync.WaitGroup
	poke   wake.Signal // the cache has become due earlier
	rescan wake.Signal // interfaces may have changed

	mu          sync.Mutex
	cache       *cache
	subscribers map[*subscriber]bool
	told        uint64   // cache.changes when subscribers were told
	news        bool     // err or warnings have changed since
	err         error    // no interface can be used
	warnings    []string // for every subscriber, since the last scan; no two are equal

	sockets map[socketKey]*socket // run's own
}

type socketKey struct {
	index int
	v6    bool
}

// subscriber is one user of some services.
type subscriber struct {
	services []service
	changed  wake.Signal // look is worth it
}

// state is what a subscriber sees.
type state struct {
	found    []found
	wait     time.Duration // until found is worth a first report; 0 when it is
	warnings []string
	err      error
}

func newBrowser(logger klog.Logger, patterns []string) *browser {
	return &browser{
		logger: logger, patterns: patterns,
		poke: wake.New(), rescan: wake.New(),
		cache: newCache(rand.Float64), subscribers: map[*subscriber]bool{},
		sockets: map[socketKey]*socket{},
	}
}

func (b *browser) start() {
	ctx, cancel := context.WithCancel(context.Background())
	b.cancel = cancel
	b.done.Go(func() { b.run(ctx) })
	b.done.Go(func() {
		if err := netif.Watch(ctx, b.rescan.Send); ctx.Err() == nil {
			b.logger.Error(err, "Changes of network interfaces are seen late", "interval", rescanInterval)
		}
	})
}

// stop returns when all goroutines have ended and all sockets are closed.
func (b *browser) stop() {
	b.cancel()
	b.done.Wait()
}

func (b *browser) subscribe(services []service) *subscriber {
	s := &subscriber{services: services, changed: wake.New()}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.subscribers[s] = true
	for _, service := range services {
		b.cache.addService(time.Now(), service)
	}
	b.poke.Send()
	return s
}

func (b *browser) unsubscribe(s *subscriber) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.subscribers, s)
	for _, service := range s.services {
		b.cache.removeService(service)
	}
}

// look returns what is there of the subscriber's services.
func (b *browser) look(s *subscriber) state {
	b.mu.Lock()
	defer b.mu.Unlock()
	state := state{err: b.err, warnings: b.warnings}
	now := time.Now()
	for _, service := range s.services {
		state.found = append(state.found, b.cache.snapshot(service)...)
		state.wait = max(state.wait, b.cache.settled(now, service))
	}
	return state
}

// warn is for the users; b.mu is held.
func (b *browser) warn(message string) {
	if slices.Contains(b.warnings, message) || len(b.warnings) == maxWarnings {
		return
	}
	b.warnings = append(slices.Clip(b.warnings), message) // a new slice: look has handed out the old one
}

func (b *browser) run(ctx context.Context) {
	defer func() {
		for _, s := range b.sockets {
			s.close()
		}
	}()
	next := time.After(0)
	scan := time.Now() // when to scan the interfaces
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.poke:
		case <-b.rescan:
			if soon := time.Now().Add(rescanDelay); soon.Before(scan) {
				scan = soon
			}
		case <-next:
		}
		if !time.Now().Before(scan) {
			b.scan(ctx)
			scan = time.Now().Add(rescanInterval)
		}
		asks, due := b.advance()
		for _, a := range asks {
			b.send(a)
		}
		if due.IsZero() || scan.Before(due) {
			due = scan
		}
		next = time.After(time.Until(due))
	}
}

// advance advances the cache if it is due. It returns what to ask and when to call next.
func (b *browser) advance() ([]ask, time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var asks []ask
	if now := time.Now(); !b.cache.due.IsZero() && !now.Before(b.cache.due) {
		asks = b.cache.advance(now)
	}
	b.tell()
	return asks, b.cache.due
}

var tooMany = fmt.Sprintf("there are more than %d instances on an interface, or %d on all: others are ignored",
	maxInstances, maxAllInstances)

// tell tells the subscribers of changes in the cache; b.mu is held.
func (b *browser) tell() {
	if b.cache.full && !slices.Contains(b.warnings, tooMany) {
		b.news = true
		b.warn(tooMany)
	}
	if b.told == b.cache.changes && !b.news {
		return
	}
	b.told, b.news = b.cache.changes, false
	for s := range b.subscribers {
		s.changed.Send()
	}
}

// receive takes the records of a packet.
func (b *browser) receive(index int, records []record) {
	b.mu.Lock()
	defer b.mu.Unlock()
	due := b.cache.due
	b.cache.receive(time.Now(), index, records)
	b.tell()
	if !b.cache.due.Equal(due) {
		b.poke.Send()
	}
}

func (b *browser) send(a ask) {
	for _, packet := range buildQueries(a.questions, a.known) {
		for _, v6 := range []bool{false, true} {
			s := b.sockets[socketKey{a.link, v6}]
			if s == nil {
				continue
			}
			if err := s.send(packet); err != nil {
				// Such as an address that is just being taken away: asked again later.
				b.logger.V(4).Info("Cannot send an mDNS query", "interface", a.link, "err", err)
			}
		}
	}
}

// scan opens sockets on new interfaces and closes those of interfaces that are gone.
func (b *browser) scan(ctx context.Context) {
	all, err := netif.List(b.patterns)
	if err != nil {
		b.fail(err)
		return
	}
	wanted := map[socketKey]bool{}
	links := map[int]bool{}
	fresh := map[int]bool{}
	var failures []error
	for _, i := range all {
		for _, v6 := range []bool{false, true} {
			key := socketKey{i.Index, v6}
			if !slices.ContainsFunc(i.Prefixes, func(p netip.Prefix) bool { return p.Addr().Is6() == v6 }) {
				continue
			}
			if old := b.sockets[key]; old == nil || old.failed.Load() {
				s, err := openSocket(i.Index, v6)
				if err != nil {
					failures = append(failures, fmt.Errorf("network interface %s: %w", i.Name, err))
					continue
				}
				b.open(ctx, key, s)
				fresh[i.Index] = true
			}
			wanted[key], links[i.Index] = true, true
		}
	}
	for key, s := range b.sockets {
		if !wanted[key] {
			s.close()
			delete(b.sockets, key)
		}
	}
	b.update(all, links, fresh, failures)
}

// update tells the cache and the subscribers of the interfaces: links are those that
// have a socket, fresh those with a new one.
func (b *browser) update(all []netif.Interface, links, fresh map[int]bool, failures []error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	for _, i := range all {
		if links[i.Index] {
			b.cache.addLink(now, i.Index, i.Name, i.Prefixes, fresh[i.Index])
		}
	}
	for index := range b.cache.links {
		if !links[index] {
			b.cache.loseLink(now, index)
		}
	}
	before := b.warnings
	b.err, b.warnings = nil, nil // those of a fault that is over are no concern of who subscribes later
	if b.cache.full = b.cache.full && b.cache.isCrowded(); b.cache.full {
		b.warn(tooMany)
	}
	if len(all) == 0 {
		b.warn(netif.None)
	}
	for _, failure := range failures {
		b.warn(failure.Error())
	}
	b.news = b.news || !slices.Equal(before, b.warnings)
	if len(links) == 0 && len(failures) > 0 {
		b.err = errors.Join(failures...)
		b.news = true
	}
}

// fail tells the users that nothing can be heard, unless interfaces were found before:
// then these stay.
func (b *browser) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.cache.links) > 0 {
		b.logger.Error(err, "Keeping the network interfaces that there were", "retry", rescanInterval)
		return
	}
	b.err = err
	b.news = true
}

// open reads from a new socket until it is closed, or until it fails: then the next scan
// opens another.
func (b *browser) open(ctx context.Context, key socketKey, s *socket) {
	b.sockets[key] = s
	b.done.Go(func() {
		if err := s.read(ctx, func(records []record) { b.receive(key.index, records) }); !errors.Is(err, net.ErrClosed) && ctx.Err() == nil {
			b.logger.Error(err, "Cannot read from an mDNS socket: opening another soon", "interface", key.index)
		}
		s.failed.Store(true)
		s.close()
	})
}
