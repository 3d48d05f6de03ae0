package nri

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
)

const (
	// registerTimeout bounds the time until the runtime has configured us. Its own
	// limits are 5 s to register and 2 s to configure.
	registerTimeout = 10 * time.Second
	// endTimeout bounds the wait for the runtime's word on the container in hand, and
	// for the stub, which may be stuck in its start when the runtime went in the
	// middle of that.
	endTimeout = 300 * time.Millisecond
	// endPoll is how often it is looked for that word.
	endPoll = 5 * time.Millisecond
)

// session is one connection. Its methods, see requests.go, are called by the stub.
type session struct {
	*Plugin
	ctx        context.Context // for what outlives a request
	configured chan struct{}
	once       sync.Once
	runtime    string // its name, set once it has configured us
	recent     bool   // its NRI, likewise
	stub       stub.Stub
	accepted   time.Time // when the runtime synchronized us; the Plugin's mutex is for it
	// answering is held for reading by requests for new containers, and for writing
	// once there are to be no more.
	answering sync.RWMutex
}

// session is the runtime's plugin on conn until that ends, or ctx is done and the
// request in hand is answered. It returns why it ended, and for how long the runtime had
// accepted us, 0 when it had not.
func (p *Plugin) session(ctx context.Context, conn net.Conn) (accepted time.Duration, err error) {
	defer conn.Close()
	stopping := ctx
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	s := &session{Plugin: p, ctx: ctx, configured: make(chan struct{})}
	p.began(s)
	defer func() {
		p.ended(s)
		p.mu.Lock()
		defer p.mu.Unlock()
		if !s.accepted.IsZero() {
			accepted = max(time.Since(s.accepted), 1)
		}
	}()
	watched := &watchedConn{Conn: conn, ended: make(chan struct{})}
	plugin, err := stub.New(s, stub.WithConnection(watched), stub.WithPluginName(p.config.Name), stub.WithPluginIdx(p.config.Index),
		stub.WithLogger(logger{}))
	if err != nil {
		return 0, err
	}
	s.stub = plugin
	ended := make(chan error, 1)
	go func() { ended <- plugin.Run(ctx) }()

	// Register and configure, then serve.
	select {
	case err := <-ended:
		return 0, cmp.Or(err, errEnded)
	case <-watched.ended:
	case <-stopping.Done():
	case <-time.After(registerTimeout):
		conn.Close()
		return 0, fmt.Errorf("the runtime did not configure the plugin within %s", registerTimeout)
	case <-s.configured:
		klog.FromContext(ctx).V(2).Info("Configured", "requestTimeout", plugin.RequestTimeout(), "runtimeNRI", plugin.RuntimeNRIVersion())
		select {
		case err := <-ended:
			return 0, cmp.Or(err, errEnded)
		case <-watched.ended:
		case <-stopping.Done():
			s.answering.Lock() // and never unlocked: who comes now finds no plugin
			_ = wait.PollUntilContextTimeout(ctx, endPoll, endTimeout, true, func(context.Context) (bool, error) {
				return s.allCreated(), nil // so the last answer has arrived
			})
		}
	}
	p.ended(s)
	cancel()
	conn.Close()
	select {
	case <-ended:
	case <-time.After(endTimeout): // it waits for a reply that cannot come any more
	}
	return 0, errEnded
}

var errEnded = errors.New("the runtime ended the connection")

// Configure is called when the runtime has registered the plugin.
func (s *session) Configure(ctx context.Context, _, runtime, release string) (api.EventMask, error) {
	within := "unknown"
	if deadline, ok := ctx.Deadline(); ok {
		within = time.Until(deadline).Round(time.Millisecond).String()
	}
	klog.FromContext(s.ctx).Info("Plugin of the runtime. NRI fails open: while kubecri is away, or if it does not answer in time, the runtime creates containers without their devices, unless its default validator requires the plugin; see docs/nri.md",
		"runtime", runtime, "version", release, "nri", s.stub.RuntimeNRIVersion(), "plugin", s.config.Name, "index", s.config.Index, "answerWithin", within)
	s.once.Do(func() {
		s.runtime = runtime
		close(s.configured)
	})
	var mask api.EventMask // all that there are methods for
	mask.Set(api.Event_STOP_POD_SANDBOX, api.Event_REMOVE_POD_SANDBOX, api.Event_CREATE_CONTAINER,
		api.Event_POST_CREATE_CONTAINER,
		api.Event_START_CONTAINER, api.Event_REMOVE_CONTAINER)
	if s.recent = recent(s.stub.RuntimeNRIVersion()); s.recent {
		mask.Set(api.Event_VALIDATE_CONTAINER_ADJUSTMENT)
		s.notValidatedYet()
	} else {
		s.tooOld()
	}
	return mask, nil
}

// recent reports whether a version of NRI is 0.10 or newer (containerd 2.2, CRI-O 1.34). An older one does not take
// a plugin that validates. Of CDI devices that a plugin adds it may give the container none, and says nothing
// (containerd/containerd#12651, cri-o/cri-o#9128).
func recent(nri string) bool {
	v, err := version.ParseGeneric(nri)
	return err == nil && v.AtLeast(version.MustParseGeneric("0.10.0"))
}

// watchedConn closes ended when the other end is gone: the stub does not always
// tell.
type watchedConn struct {
	net.Conn
	once  sync.Once
	ended chan struct{}
}

func (c *watchedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil {
		c.once.Do(func() { close(c.ended) })
	}
	return n, err
}

// logger passes on what the stub says.
type logger struct{}

func (logger) log(ctx context.Context, level klog.Level, format string, args []any) {
	klog.FromContext(ctx).WithName("nri").V(int(level)).Info(fmt.Sprintf(format, args...))
}

func (l logger) Debugf(ctx context.Context, format string, args ...any) { l.log(ctx, 6, format, args) }
func (l logger) Infof(ctx context.Context, format string, args ...any)  { l.log(ctx, 4, format, args) }
func (l logger) Warnf(ctx context.Context, format string, args ...any)  { l.log(ctx, 1, format, args) }
func (l logger) Errorf(ctx context.Context, format string, args ...any) { l.log(ctx, 0, format, args) }
