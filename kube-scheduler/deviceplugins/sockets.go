package deviceplugins

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/plugins/remote"
	"github.com/kubeslot/kubeslot/types/plugin/registration"
)

// connections have the plugins of sockets take part, as they come and go.
type connections struct {
	cache *deviceCache
	o     *Options

	mu     sync.Mutex
	halves map[*remote.Plugin]*remote.Scheduler
	down   map[*remote.Plugin]bool // since it was up
}

// minTimeout leaves a plugin the time to answer at all.
const minTimeout = 10 * time.Millisecond

// connect connects to plugins' sockets, also to those that are made later, until ctx ends.
func connect(ctx context.Context, a *deviceCache, o *Options) error {
	if o.Sockets == "" {
		return nil
	}
	if o.Timeout < minTimeout {
		return fmt.Errorf("--plugin-timeout %s: want at least %s", o.Timeout, minTimeout)
	}
	c := &connections{cache: a, o: o, halves: map[*remote.Plugin]*remote.Scheduler{}, down: map[*remote.Plugin]bool{}}
	sockets, err := remote.New(remote.Config{Folder: o.Sockets, Half: registration.Half_SCHEDULER, Policies: o.Policies,
		Connect: c.connect, Added: c.added, Changed: c.changed})
	if err != nil {
		return err
	}
	o.connected = sockets
	go sockets.Run(klog.NewContext(ctx, a.logger))
	return nil
}

// added has a plugin take part that was seen, or named by a flag, for the first time.
func (c *connections) added(p *remote.Plugin) {
	half := remote.NewScheduler(p, c.o.Timeout)
	c.mu.Lock()
	c.halves[p] = half
	c.mu.Unlock()
	startAtZero(p.Name())
	up.WithLabelValues(p.Name()).Set(0)
	if err := c.cache.host.Put(half); err != nil {
		c.cache.logger.Error(err, "A device scheduler plugin cannot be used", "plugin", p.Name())
		return
	}
	if err := c.cache.feed(); err != nil {
		c.cache.logger.Error(err, "Cannot follow nodes and pods for device scheduler plugins")
	}
}

func (c *connections) connect(ctx context.Context, p *remote.Plugin, conn grpc.ClientConnInterface,
	ready func()) error {
	c.mu.Lock()
	half := c.halves[p]
	c.mu.Unlock()
	return half.Connect(ctx, conn, func() error { return c.cache.host.Put(half) }, ready)
}

// changed reports that a plugin came or went, and has the pods tried that may wait for it.
func (c *connections) changed(p *remote.Plugin) {
	c.mu.Lock()
	defer c.mu.Unlock()
	why := p.Away()
	if why == nil {
		why = p.Paused()
	}
	c.cache.recognized.Clear() // it may come back with other resources
	if why == nil {
		up.WithLabelValues(p.Name()).Set(1)
		if c.down[p] {
			c.down[p] = false
			c.event(v1.EventTypeNormal, "DevicePluginRecovered", fmt.Sprintf("plugin %q is asked again", p.Name()))
		}
		c.cache.retryFaulted()
		return
	}
	up.WithLabelValues(p.Name()).Set(0)
	if c.down[p] {
		return
	}
	c.down[p] = true
	c.event(v1.EventTypeWarning, "DevicePluginAway", fmt.Sprintf("pods that request its resources wait: %v", why))
}

func (c *connections) event(kind, reason, message string) {
	c.cache.recorder.Eventf(&lease, nil, kind, reason, "Scheduling", "%s", shorten(message, maxEventMessage))
}
