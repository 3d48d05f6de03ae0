package deviceplugins

import (
	"context"
	"fmt"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/plugins/remote"
	"github.com/kubeslot/kubeslot/types/plugin/registration"
)

// remotePlugin is a plugin that takes part by its sockets, as they come and go.
type remotePlugin struct {
	*remote.Scheduler
	cache *deviceCache

	mu   sync.Mutex
	down bool // since it was up
}

// connect connects to plugins' sockets, also to those that are made later, until ctx ends.
func connect(ctx context.Context, a *deviceCache, o *Options) error {
	if o.Sockets == "" {
		return nil
	}
	var err error
	o.connected, err = remote.New(remote.Config{Options: o.Options, Half: registration.Half_SCHEDULER, Added: a.added})
	if err != nil {
		return err
	}
	go o.connected.Run(klog.NewContext(ctx, a.logger))
	return nil
}

// added has a plugin take part that was seen, or named by a flag, for the first time.
func (a *deviceCache) added(p *remote.Plugin) remote.Handler {
	startAtZero(p.GetName())
	up.WithLabelValues(p.GetName()).Set(0)
	half, err := remote.NewScheduler(a.host, p)
	if err == nil {
		err = a.feed()
	}
	if err != nil {
		a.logger.Error(err, "A device scheduler plugin cannot be used", "plugin", p.GetName())
	}
	return &remotePlugin{Scheduler: half, cache: a}
}

// Changed reports that the plugin came or went, and has the pods tried that may wait for it.
func (r *remotePlugin) Changed() {
	r.mu.Lock()
	defer r.mu.Unlock()
	name, wrong := r.GetName(), r.Failing()
	r.cache.recognized.Clear() // it may come back with other resources
	switch {
	case wrong != nil && !r.down:
		up.WithLabelValues(name).Set(0)
		r.cache.event(v1.EventTypeWarning, "DevicePluginAway",
			fmt.Sprintf("pods that request its resources wait: %v", wrong))
	case wrong == nil && r.down:
		r.cache.event(v1.EventTypeNormal, "DevicePluginRecovered", fmt.Sprintf("plugin %q is asked again", name))
	}
	if r.down = wrong != nil; !r.down {
		up.WithLabelValues(name).Set(1)
	}
	if r.Away() == nil {
		r.cache.retryFaulted()
	}
}

// event records an Event of the scheduler's own.
func (a *deviceCache) event(kind, reason, message string) {
	a.recorder.Eventf(&lease, nil, kind, reason, "Scheduling", "%s", shorten(message, maxEventMessage))
}
