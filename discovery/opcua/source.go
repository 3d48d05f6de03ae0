package opcua

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/discovery"
)

// source asks one URL again and again. What it thinks of it goes to views.
type source struct {
	at        target
	learned   bool // from another source, and not of the details
	onNetwork bool // also what the server knows from its network
	names     *discovery.FilterList
	interval  time.Duration
	timeout   time.Duration // of a round's requests
	resolver  resolver
	answers   probe // answersAs, but in tests
	named     named
	asking    places // for a URL that was not given up
	givenUp   places // for one that was
	views     chan<- view
	noNetwork bool // the server has no FindServersOnNetwork
	near      bool // it is on this node
}

// places has one for each URL that is asked: as many at a time as it has room for.
type places chan struct{}

// view is what a source thinks of its URL.
type view struct {
	of *source
	found
	settled  bool
	warnings []string // for the Configuration's author
}

// run asks until ctx ends.
func (s *source) run(ctx context.Context) {
	log := klog.FromContext(ctx).WithValues("url", s.at.url)
	var now standing
	for {
		place := s.asking
		if now.gaveUp {
			place = s.givenUp
		}
		f, warnings, err := s.round(ctx, place)
		if ctx.Err() != nil {
			return
		}
		before := now
		wait := now.observe(f, err, s.interval)
		if err != nil {
			log.V(2).Info("No answer", "err", err, "failures", now.failures, "refusals", now.refusals)
		}
		if now.gaveUp && !before.gaveUp {
			log.Info("No server", "err", err)
			s.named = named{}
			warnings = append(warnings, fmt.Sprintf("no OPC UA server at %s: %v", s.at.url, cause(err)))
		}
		select {
		case <-ctx.Done():
			return
		case s.views <- view{of: s, found: now.found, settled: now.settled, warnings: warnings}:
		}
		// All nodes ask the same servers: not at the same time.
		wait += time.Duration((rand.Float64() - 0.5) / 5 * float64(wait))
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// round asks once, in its place. A panic while it reads what the server sends is an error.
func (s *source) round(ctx context.Context, place places) (f found, warnings []string, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
			klog.FromContext(ctx).Error(err, "Asking a server", "url", s.at.url)
		}
	}()
	select {
	case <-ctx.Done():
		return f, nil, ctx.Err()
	case place <- struct{}{}:
		defer func() { <-place }()
	}
	ctx, cancel := context.WithTimeout(ctx, roundFactor*s.timeout)
	defer cancel()
	applications, records, err := s.ask(ctx)
	if err != nil {
		return f, nil, err
	}
	most := maxServers
	if s.learned {
		most = maxServersOfLearned
	}
	servers := serversOf(applications, s.names, most+1)
	more := len(servers) > most
	servers = servers[:min(len(servers), most)]
	known := s.resolver.known(ctx, servers)
	for i, own := range servers {
		where, _ := own.locate(s.at, known)
		if t, err := s.parse(where); err == nil && own.itself && t.address() != s.at.address() {
			servers[i].elsewhere = s.named.check(ctx, t, own.uri, s.answers)
		}
	}
	f.devices, warnings = devicesOf(servers, s.at, known)
	for _, r := range records {
		// The other discovery servers know nothing that this one does not.
		if t, err := s.parse(r.url); err == nil && !slices.Contains(r.capabilities, "LDS") {
			f.learned = append(f.learned, t)
		}
	}
	if more {
		warnings = append(warnings, fmt.Sprintf("%s names more than %d servers: others are left out", s.at.url, most))
	}
	if s.noNetwork {
		warnings = append(warnings, fmt.Sprintf("the server at %s has no FindServersOnNetwork: serversOnNetwork finds nothing there", s.at.url))
	}
	return f, warnings, nil
}

// ask sends the requests of a round.
func (s *source) ask(ctx context.Context) (list []application, records []record, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	c, err := dial(ctx, s.at)
	if err != nil {
		return nil, nil, err
	}
	defer c.close()
	s.near = c.near()
	if s.learned {
		c.limit = maxAnswerOfLearned
	}
	if list, err = c.findServers(); err != nil {
		return nil, nil, err
	}
	s.noNetwork = false
	if s.onNetwork {
		records, err = c.findServersOnNetwork()
		if errors.Is(err, badServiceUnsupported) || errors.Is(err, badNotImplemented) {
			s.noNetwork, err = true, nil
		}
	}
	return list, records, err
}

// parse reads a URL that the server names.
func (s *source) parse(text string) (target, error) {
	t, err := parseTarget(text)
	t.named, t.near = true, s.near
	return t, err
}

// cause is a network error without the addresses and ports of the connection: the same
// text for the same cause.
func cause(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Err != nil {
		return op.Err
	}
	return err
}
