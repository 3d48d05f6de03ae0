package onvif

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/discovery/netif"
	"github.com/kubeslot/kubeslot/wake"
)

const (
	// maxAsked bounds the cameras that are asked directly at a time.
	maxAsked = 32

	// addressDelay is how long addresses may come and go before links are looked at.
	addressDelay = 200 * time.Millisecond

	// messagesPerSecond and messagesAtOnce bound what a flood costs on one socket: the kernel
	// drops what is beyond. At once there are the answers of 1000 cameras to both probes.
	messagesPerSecond, messagesAtOnce = 250, 2000
)

// scan probes for cameras and listens for them, once for all Configurations of a node.
type scan struct {
	patterns []string
	interval time.Duration
	client   *client
	started  time.Time
	resolves *rate.Limiter
	cancel   context.CancelFunc
	running  sync.WaitGroup

	mu        sync.Mutex
	sightings sightings
	changed   chan struct{} // closed at the next change
	links     map[endpointAddress]*link
	none      bool       // no interface can have a link
	questions []question // not asked yet
	later     []question // likewise, after the others
	asking    int        // goroutines that ask
}

// startScan fails when interfaces cannot be listed, or none of them can be used.
func startScan(ctx context.Context, client *client, patterns []string, interval time.Duration) (*scan, error) {
	s := &scan{
		patterns: patterns, interval: interval, client: client, started: time.Now(),
		resolves: rate.NewLimiter(10, 20), changed: make(chan struct{}), links: map[endpointAddress]*link{},
	}
	ctx, s.cancel = context.WithCancel(ctx)
	addresses := wake.New()
	s.running.Go(func() {
		if err := netif.Watch(ctx, addresses.Send); ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Looking at addresses from time to time instead", "handler", Name, "interval", interval)
		}
	})
	links, err := s.updateLinks(ctx)
	if err != nil {
		s.stop()
		return nil, err
	}
	s.running.Go(func() { s.run(ctx, links, addresses) })
	return s, nil
}

// stop returns when all of the scan has ended.
func (s *scan) stop() {
	s.cancel()
	s.mu.Lock()
	for _, l := range s.links {
		l.close()
	}
	s.mu.Unlock()
	s.running.Wait()
}

// run probes until ctx ends.
func (s *scan) run(ctx context.Context, links []*link, addresses wake.Signal) {
	s.probe(ctx, links)
	round := time.NewTicker(s.interval)
	defer round.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-round.C:
			s.update(ctx, func() (bool, []question) { return false, s.sightings.endRound() })
			if _, err := s.updateLinks(ctx); err != nil {
				klog.FromContext(ctx).Error(err, "Cannot look for cameras", "handler", Name)
			}
			s.probe(ctx, s.allLinks())
			continue
		case <-addresses:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(addressDelay):
		}
		opened, err := s.updateLinks(ctx)
		if err != nil {
			klog.FromContext(ctx).Error(err, "Cannot look for cameras", "handler", Name)
		}
		if len(opened) > 0 {
			s.probe(ctx, opened)
		}
	}
}

// probe sends all probes, and again a little later: UDP loses messages, and SOAP over
// UDP (appendix I) wants multicast repeated after 50 to 250 ms.
func (s *scan) probe(ctx context.Context, links []*link) {
	// Each link has messages of its own: a camera answers only the first of two with one
	// MessageID, and the address that the second was sent by may be the better one.
	messages := make([][][]byte, len(links))
	for i := range links {
		messages[i] = probes()
	}
	send := func() {
		for i, l := range links {
			for _, m := range messages[i] {
				if err := l.send(m); err != nil && ctx.Err() == nil {
					klog.FromContext(ctx).V(2).Info("Cannot send a probe", "handler", Name, "interface", l.name, "err", err)
				}
			}
		}
	}
	send()
	select {
	case <-ctx.Done():
	case <-time.After(50*time.Millisecond + rand.N(200*time.Millisecond)):
		send()
	}
}

func (s *scan) allLinks() []*link {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.links))
}

// updateLinks opens and closes links, so that they are what the machine's interfaces
// are now. It returns those that are new, and an error when none can be used of those
// that there are.
func (s *scan) updateLinks(ctx context.Context) (opened []*link, err error) {
	interfaces, err := netif.List(s.patterns)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil {
		return nil, nil // stop has closed the links
	}
	var failures []error
	old := s.links
	s.links = map[endpointAddress]*link{}
	wanted := endpoints(interfaces)
	s.none = len(wanted) == 0
	for _, e := range wanted {
		if l := old[e]; l != nil {
			s.links[e] = l
			delete(old, e)
			continue
		}
		l, err := openLink(e)
		if err != nil {
			failures = append(failures, err)
			klog.FromContext(ctx).Error(err, "Cannot look for cameras on an interface", "handler", Name, "interface", e.name, "address", e.address)
			continue
		}
		s.links[e] = l
		opened = append(opened, l)
		s.running.Go(func() { s.read(ctx, l, l.unicast) })
		s.running.Go(func() { s.read(ctx, l, l.group) })
	}
	for _, l := range old {
		l.close()
	}
	if len(s.links) == 0 {
		return nil, errors.Join(failures...)
	}
	return opened, nil
}

// read takes messages until the link is closed.
func (s *scan) read(ctx context.Context, l *link, conn net.PacketConn) {
	buffer := make([]byte, maxDatagram)
	limit := rate.NewLimiter(messagesPerSecond, messagesAtOnce)
	for {
		_ = limit.Wait(ctx) // fails once ctx has ended
		n, from, err := conn.ReadFrom(buffer)
		if errors.Is(err, net.ErrClosed) || ctx.Err() != nil {
			return
		}
		if err != nil { // such as ENETDOWN; the link is closed when its address goes
			klog.FromContext(ctx).V(2).Info("Cannot receive", "handler", Name, "interface", l.name, "err", err)
			select {
			case <-ctx.Done():
				return
			case <-time.After(addressDelay):
			}
			continue
		}
		source := from.(*net.UDPAddr).AddrPort().Addr().Unmap().WithZone("")
		if err := s.receive(ctx, l, source, buffer[:n]); err != nil {
			klog.FromContext(ctx).V(4).Info("Ignoring a message", "handler", Name, "interface", l.name, "source", source, "err", err)
		}
	}
}

// receive takes one message.
func (s *scan) receive(ctx context.Context, l *link, source netip.Addr, datagram []byte) error {
	present, leaving, err := parseMessage(datagram)
	if err != nil {
		return err
	}
	on := path{index: l.index, source: source}
	for _, a := range present {
		var unresolved bool
		s.update(ctx, func() (changed bool, ask []question) {
			changed, unresolved, ask = s.sightings.heard(on, a, time.Now())
			return changed, ask
		})
		if unresolved && s.resolves.Allow() {
			_ = l.send(resolve(a.address)) // asked again when it is heard again
		}
	}
	for _, uuid := range leaving {
		s.update(ctx, func() (bool, []question) { return false, s.sightings.bye(uuid) })
	}
	return nil
}

// update changes the sightings, wakes who waits for changes, and asks the questions
// that come of it.
func (s *scan) update(ctx context.Context, change func() (changed bool, ask []question)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed, ask := change()
	if changed {
		close(s.changed)
		s.changed = make(chan struct{})
	}
	if ctx.Err() != nil {
		return
	}
	for _, q := range ask {
		queue := &s.questions
		if q.later {
			queue = &s.later
		}
		*queue = append(*queue, q)
		if s.asking < maxAsked {
			s.asking++
			s.running.Go(func() { s.ask(ctx) })
		}
	}
}

// ask asks until there are no questions left.
func (s *scan) ask(ctx context.Context) {
	for {
		s.mu.Lock()
		queue := &s.questions
		if len(*queue) == 0 {
			queue = &s.later
		}
		if len(*queue) == 0 || ctx.Err() != nil {
			s.asking--
			s.mu.Unlock()
			return
		}
		q := (*queue)[0]
		*queue = (*queue)[1:]
		s.mu.Unlock()

		offset, err := s.client.isThere(ctx, q.target)
		if ctx.Err() != nil {
			continue
		}
		klog.FromContext(ctx).V(3).Info("Asked a camera", "handler", Name, "uuid", q.uuid, "url", q.target.xaddr, "clockOffset", offset, "err", err)
		s.update(ctx, func() (bool, []question) {
			changed, again := s.sightings.answered(q.uuid, q.target.xaddr, err, offset)
			if again > 0 {
				s.running.Go(func() { s.askAgain(ctx, q.uuid, again) })
			}
			return changed, nil
		})
	}
}

// askAgain asks a camera that said Bye, after a while.
func (s *scan) askAgain(ctx context.Context, uuid string, after time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(after):
		s.update(ctx, func() (bool, []question) { return false, s.sightings.askLeaving(uuid) })
	}
}

// present returns the cameras that are there, sorted by UUID, whether others are being
// asked for the first time, and a channel that closes when this changes.
func (s *scan) present() (cameras []camera, pending bool, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	cameras, pending = s.sightings.present()
	return cameras, pending, s.changed
}

// warn tells of what may keep cameras from being found.
func (s *scan) warn(warnf func(format string, args ...any)) {
	s.mu.Lock()
	full, none := s.sightings.full, s.none
	s.mu.Unlock()
	if full {
		warnf("%s: more cameras, or more addresses of one, announce themselves than a node keeps: others are ignored",
			Name)
	}
	if none {
		warnf("%s: %s", Name, netif.None)
	}
}

// unanswered returns the cameras that announce themselves and do not answer. When they
// change, present's channel closes.
func (s *scan) unanswered() []unanswered {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sightings.unanswered()
}
