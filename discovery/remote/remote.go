// Package remote runs discovery handlers of other processes. They register over Akri's
// discovery protocol, and are then run as the handlers in this process are.
//
// A Server takes the registrations. Each registered endpoint becomes a
// discovery.Source, whose Handler opens a connection and a stream for each Discover.
// A Server does not read what a handler sends: it has a Worker do that, whose Runner passes lists on.
// A registration that is there already changes nothing of running streams: Akri's
// handlers register again after each stream that the agent cancels.
package remote

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/discovery"
	pb "github.com/kubeslot/kubeslot/types/discovery/v0"
)

const (
	// silentAfter is how long a stream may be open without a message until it counts as a
	// report of no devices: two rounds of Akri's handlers, of which udev, onvif and opcua
	// say nothing while they see nothing.
	silentAfter = 30 * time.Second

	// DefaultForgetAfter is long enough for a node to pull a handler's new image.
	DefaultForgetAfter = 10 * time.Minute

	// maxEndpoints is how many endpoints are known at a time: more than a node has
	// handlers.
	maxEndpoints = 256

	// renewInterval is how often at most a registration ends a backoff.
	renewInterval = time.Second
)

// Config is what a Server needs. All but Registry is optional.
type Config struct {
	// Registry gets a source for each endpoint.
	Registry *discovery.Registry

	// Directory is the directory of discovery handlers, by default pb.DefaultDirectory. It
	// is made when it is not there.
	Directory string

	// ForgetAfter is how long an endpoint may be unreachable until its source is
	// removed. It should be longer than devices outlive their handler.
	ForgetAfter time.Duration

	// Worker is the process that speaks to handlers; by default it is this one.
	Worker Worker

	// Dropped, if set, is called for each connection to the socket that was closed because
	// there were too many.
	Dropped func()
}

// Server knows the registered endpoints. Make one with NewServer. Its methods are safe
// for concurrent use.
type Server struct {
	config Config
	news   rate.Sometimes // that are logged: registrations may come in floods

	mu        sync.Mutex
	endpoints map[string]*endpoint // by source ID

	lookInterval, connectTimeout, silentAfter time.Duration // never change
	maxEndpoints                              int           // never changes
	bounds                                    *bounds
}

// NewServer returns a server, to be started with Run.
func NewServer(config Config) (*Server, error) {
	if config.Registry == nil {
		return nil, errors.New("remote discovery handlers: Registry is missing")
	}
	config.Directory = cmp.Or(config.Directory, pb.DefaultDirectory)
	config.ForgetAfter = cmp.Or(config.ForgetAfter, DefaultForgetAfter)
	if config.Worker == nil {
		config.Worker = thisProcess{NewRunner(nil)}
	}
	return &Server{config: config, news: rate.Sometimes{First: 100, Interval: time.Second},
		endpoints: map[string]*endpoint{}, maxEndpoints: maxEndpoints, bounds: newBounds(),
		lookInterval: lookInterval, connectTimeout: connectTimeout, silentAfter: silentAfter}, nil
}

// register makes the endpoint of a registration known, or renews it. An error is about
// the registration itself, and stays the same however often it is repeated.
func (s *Server) register(logger klog.Logger, request *pb.RegisterDiscoveryHandlerRequest) error {
	at, err := parse(request, s.config.Directory)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	id := request.GetName() + "@" + at.text
	if known := s.endpoints[id]; known != nil {
		logger.V(2).Info("A discovery handler registered again", "handler", request.GetName(), "endpoint", at.text)
		known.renew(request.GetShared())
		return nil
	}
	if len(s.endpoints) >= s.maxEndpoints && !s.evict(logger) {
		// Not an error: handlers end with one, and there may be room later.
		s.news.Do(func() {
			logger.Error(fmt.Errorf("%d discovery handlers are in use", len(s.endpoints)), "Cannot take one more",
				"handler", request.GetName(), "endpoint", at.text)
		})
		return nil
	}
	e := newEndpoint(request.GetName(), at, request.GetShared(), s)
	s.endpoints[id] = e
	s.config.Registry.Add(e.source)
	s.news.Do(func() {
		logger.Info("A discovery handler registered", "handler", e.name, "endpoint", at.text, "shared", request.GetShared())
	})
	return nil
}

// evict forgets an endpoint without a stream: the one that has been unreachable for
// the longest time, or else the newest, as a flood is newer than what it floods. It
// returns false when all are in use. s.mu must be held.
func (s *Server) evict(logger klog.Logger) bool {
	var victim *endpoint
	var victimState state
	for _, e := range s.endpoints {
		if now := e.state(); now.streams == 0 && (victim == nil || now.before(victimState)) {
			victim, victimState = e, now
		}
	}
	if victim == nil {
		return false
	}
	s.remove(victim)
	s.news.Do(func() {
		logger.Info("Forgot a discovery handler to make room", "handler", victim.name, "endpoint", victim.address.text)
	})
	return true
}

// forget removes an endpoint that has been unreachable for too long, unless it has
// been registered or reached meanwhile.
func (s *Server) forget(logger klog.Logger, e *endpoint) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := e.state()
	if s.endpoints[e.source.ID] != e || now.streams > 0 || now.unreachableSince.IsZero() ||
		time.Since(now.unreachableSince) < s.config.ForgetAfter {
		return
	}
	s.remove(e)
	logger.Info("Forgot a discovery handler that could not be reached", "handler", e.name, "endpoint", e.address.text,
		"since", now.unreachableSince)
}

// remove removes the endpoint and its source. s.mu must be held.
func (s *Server) remove(e *endpoint) {
	delete(s.endpoints, e.source.ID)
	s.config.Registry.Remove(e.source.ID)
}
