package scheduler

import (
	"context"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/client-go/tools/metrics"
)

// requests counts the writes to the API of all clients in this process: of the
// scheduler, the controllers and the harness.
var requests = &requestCounter{}

// requestCounter hooks into client-go's latency metric. The API server's own
// counters would do, but scheduler_perf resets them before a run is over.
type requestCounter struct {
	next metrics.LatencyMetric
	// scheduling are the writes for the sake of a pod's scheduling: its binding
	// and status, and claims. Its creation is none.
	scheduling, events atomic.Int64
}

// install replaces client-go's hook, which is global.
func (c *requestCounter) install() {
	c.next, metrics.RequestLatency = metrics.RequestLatency, c
}

// Observe implements metrics.LatencyMetric. The URL has placeholders for names.
func (c *requestCounter) Observe(ctx context.Context, verb string, u url.URL, latency time.Duration) {
	c.next.Observe(ctx, verb, u, latency)
	if verb == "GET" {
		return
	}
	path := strings.Split(u.Path, "/")
	last := path[len(path)-1]
	switch has := func(resource string) bool { return slices.Contains(path, resource) }; {
	case last == "events":
		c.events.Add(1)
	case has("pods") && (verb != "POST" || last != "pods"), has("resourceclaims"), has("slotclaims"), has("deviceslices"), has("instances"), has("configurations"):
		c.scheduling.Add(1)
	}
}
