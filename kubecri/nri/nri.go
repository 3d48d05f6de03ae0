// Package nri makes kubecri a plugin of the runtime's Node Resource Interface
// (https://github.com/containerd/nri), instead of a proxy in front of the runtime. The
// kubelet talks to the runtime directly. The runtime asks this plugin before it creates
// a container, and reports how its containers change. Package admit decides what a
// container gets, as in proxy mode.
//
// NRI fails open: a runtime whose plugin is not connected, or does not answer in time,
// creates containers without it. Therefore
//
//   - every answer comes before the runtime's time limit, as a refusal if need be;
//   - a runtime that asks plugins to validate (NRI 0.10) refuses the container over
//     which this plugin hangs;
//   - a container that was created without its devices is not started, or is stopped,
//     as soon as it is seen;
//   - docs/nri.md says how to make containerd refuse by itself.
package nri

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/containerd/nri/pkg/api"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/kubecri/admit"
	"github.com/kubeslot/kubeslot/kubecri/claims"
	"github.com/kubeslot/kubeslot/kubecri/nodewriter"
	"github.com/kubeslot/kubeslot/kubecri/tracing"
)

const (
	// dialRetry is between two attempts to connect: for so long containers may be
	// created without us after the runtime has restarted.
	dialRetry = 100 * time.Millisecond
	// refusedRetry is after a connection that the runtime did not accept as a
	// plugin's, and the longest after connections that it ended soon.
	refusedRetry = 2 * time.Second
	// lasting is how long a connection is there that the runtime did not end because we
	// were late: containerd's limit for an answer is 2 s.
	lasting = 10 * time.Second
)

// Config configures a Plugin. Everything but Tracer is required.
type Config struct {
	Node string
	// Socket is the runtime's NRI socket, Name and Index (two digits, the order
	// among plugins) what we register as.
	Socket, Name, Index string
	Admitter            *admit.Admitter
	Claims              *claims.Claims // the Admitter's
	// Condition has the node say a condition; it returns at once.
	Condition func(nodewriter.Condition)
	Tracer    *tracing.Tracer
}

// Plugin is the plugin. Safe for concurrent use.
type Plugin struct {
	config Config
	// ready is closed when the runtime has accepted us for the first time.
	ready     chan struct{}
	firstTime sync.Once

	mu sync.Mutex
	// current is the connection that there is. A request of a former one that is still at
	// work changes nothing any more.
	current  *session
	creating map[string]creation // by container id
	// lost says why there is no connection; nil while there is one.
	lost error
}

// creation is a container that was admitted, and that the runtime goes on to create.
type creation struct {
	*admit.Admission
	sandbox, container string
}

// New makes a Plugin that is not connected yet.
func New(config Config) (*Plugin, error) {
	if config.Node == "" || config.Socket == "" || config.Admitter == nil || config.Claims == nil || config.Condition == nil {
		return nil, errors.New("nri: node, socket, admitter, claims and condition are required")
	}
	if err := CheckName(config.Name, config.Index); err != nil {
		return nil, fmt.Errorf("nri: %w", err)
	}
	return &Plugin{config: config, ready: make(chan struct{}), creating: map[string]creation{},
		lost: errors.New("not connected yet")}, nil
}

// CheckName checks a plugin's name and index.
func CheckName(name, index string) error {
	return errors.Join(api.CheckPluginName(name), api.CheckPluginIndex(index))
}

// Run is a plugin of the runtime until ctx is done, and again whenever the runtime
// has come back.
func (p *Plugin) Run(ctx context.Context) {
	logger := klog.FromContext(ctx).WithName("nri")
	ctx = klog.NewContext(ctx, logger)
	logged, short := false, 0
	for ctx.Err() == nil {
		retry := dialRetry
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", p.config.Socket)
		if err == nil {
			var accepted time.Duration
			accepted, err = p.session(ctx, conn)
			switch {
			case accepted == 0:
				retry = refusedRetry
			case accepted >= lasting:
				logged, short = false, 0
			default:
				retry = min(dialRetry<<min(short, 10), refusedRetry)
				short++
				err = fmt.Errorf("%w %s after it had begun to synchronize; if this repeats and the runtime logs \"failed to synchronize plugin\", raise its plugin_request_timeout", err, accepted.Round(time.Millisecond))
			}
		}
		if ctx.Err() != nil {
			return
		}
		p.disconnected(err)
		if !logged { // once an outage
			logged = true
			logger.Error(err, "Not connected to the runtime's NRI: it creates containers without their devices meanwhile, unless it is configured to require this plugin",
				"socket", p.config.Socket, "plugin", p.config.Name)
		}
		select {
		case <-time.After(retry):
		case <-ctx.Done():
		}
	}
}

// Ready returns what is closed once the runtime has accepted the plugin: from then
// on containers are not created without it.
func (p *Plugin) Ready() <-chan struct{} { return p.ready }

// Connected returns why the runtime does not ask us; nil when it does.
func (p *Plugin) Connected() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lost == nil {
		return nil
	}
	return fmt.Errorf("plugin %s-%s at %s: %w", p.config.Index, p.config.Name, p.config.Socket, p.lost)
}

// began makes the session the current one.
func (p *Plugin) began(s *session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.current = s
}

// ended says that the session is not the current one any more.
func (p *Plugin) ended(s *session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current == s {
		p.current = nil
	}
}

// synchronized is told what containers the runtime has, when it has begun to ask for each
// new one: what became of those that were being created is known. false means that the
// session has ended.
func (p *Plugin) synchronized(s *session, exists map[string]bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current != s {
		return false
	}
	s.accepted = time.Now()
	p.settle(s.ctx, exists)
	p.lost = nil
	p.firstTime.Do(func() { close(p.ready) })
	return true
}

func (p *Plugin) disconnected(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lost = err
}

// begin remembers what the runtime goes on to create. A runtime creates one container of a name at a time, so one that
// was to be created before was not: CRI-O does not tell when that fails in its OCI runtime, or because of another
// plugin. false means that the session has ended: the runtime went on without the answer.
func (p *Plugin) begin(s *session, id string, c creation) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current != s {
		return false
	}
	p.fail(func(other creation) bool { return other.sandbox == c.sandbox && other.container == c.container })
	p.creating[id] = c
	return true
}

// stopped says that a sandbox has stopped: its containers, and those that are being created there, cannot start.
func (p *Plugin) stopped(sandbox string) {
	p.mu.Lock()
	p.fail(func(c creation) bool { return c.sandbox == sandbox })
	p.mu.Unlock()
	p.config.Claims.Removed(sandbox)
}

// fail ends creations of which there is no container. The lock is held.
func (p *Plugin) fail(those func(creation) bool) {
	for id, c := range p.creating {
		if those(c) {
			delete(p.creating, id)
			c.Failed(status.Error(codes.Aborted, "the runtime did not create the container"))
		}
	}
}

// end returns the admission that begin remembered; nil for nothing.
func (p *Plugin) end(id string) *admit.Admission {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.creating[id].Admission
	delete(p.creating, id)
	return a
}

// allCreated reports whether the runtime has said of all admitted containers what became of
// them.
func (p *Plugin) allCreated() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.creating) == 0
}

// settle ends all creations, once the runtime has said what containers it has.
func (p *Plugin) settle(ctx context.Context, exists map[string]bool) {
	for id, c := range p.creating {
		if exists[id] {
			c.Created(ctx, id)
		} else {
			c.Failed(status.Error(codes.Unavailable, "the connection to the runtime's NRI was lost meanwhile"))
		}
	}
	clear(p.creating)
}
