// Package restored notices that the API server's data were restored from an older backup.
//
// After a restore resource versions go back. A watch that goes on from a version that the
// API server has yet to reach gets no error: it silently misses all changes until then,
// and what the restore undid stays in the informer's cache
// (https://github.com/kubernetes/kubernetes/issues/107457). Kubernetes therefore wants all
// components restarted after a restore, or etcd restored with --bump-revision and
// --mark-compacted. Guard lets a component find out by itself, so that it can end and
// start with fresh caches.
package restored

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

const (
	// The API server is first asked after firstAsk, then less often, and in the end every
	// lastAsk, until it answers.
	firstAsk, lastAsk = 500 * time.Millisecond, 3 * time.Second
	askTimeout        = 10 * time.Second
	// quiet is how long no request must have failed for the next failure to be a new one: while something
	// is refused again and again, the API server is asked every lastAsk.
	quiet = time.Minute
	// bumped is by how much resource versions grow only by `etcdutl snapshot restore --bump-revision`,
	// of which 1,000,000,000 is the default.
	bumped = 100_000_000
)

// Cache is an informer's cache, or a reflector's.
type Cache struct {
	Resource schema.GroupVersionResource
	// FieldSelector is that of the informer, where its user may list nothing else.
	FieldSelector string
	// Informer says how far the cache is: a SharedIndexInformer or a cache.Controller.
	Informer interface{ LastSyncResourceVersion() string }
}

// Error says that a cache is ahead of the API server, or so far behind that a restore has bumped
// resource versions.
type Error struct {
	Resource      schema.GroupResource
	Seen, Current string // resource versions: the cache's and the API server's
}

func (e *Error) Error() string {
	return fmt.Sprintf("the API server's data were restored from a backup: its %s are at resource version %s, and %s was seen; this process has to start again, to read them anew", e.Resource, e.Current, e.Seen)
}

// Guard compares caches with the API server whenever it could not be reached for a
// while: nobody restores a backup under an API server that runs. Otherwise it costs
// nothing.
type Guard struct {
	interrupted chan struct{}

	mu sync.Mutex
	// settled is closed when the caches were compared after requests had failed. Those that fail while
	// the caches are compared are waited for by later callers of Settled alone, with another channel.
	settled chan struct{}
	// unsettled is true when a request has failed since the caches were last begun to be compared.
	unsettled bool
}

// New makes a Guard that follows the requests of config's clients, which are to be made
// afterwards.
func New(config *rest.Config) *Guard {
	g := &Guard{interrupted: make(chan struct{}, 1), settled: make(chan struct{})}
	close(g.settled)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &transport{next, g} })
	return g
}

// Settled waits until it is known that no backup was restored: a moment after requests have failed, and
// at once if none has. Until then the caches, and whether an object is there, may be of another time.
func (g *Guard) Settled(ctx context.Context) error {
	g.mu.Lock()
	settled := g.settled
	g.mu.Unlock()
	select {
	case <-settled:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the API server could not be reached a moment ago, and may have been restored from a backup: %w", ctx.Err())
	}
}

// interrupt notes that a request was not answered.
func (g *Guard) interrupt() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.unsettled {
		g.unsettled, g.settled = true, make(chan struct{})
	}
	select {
	case g.interrupted <- struct{}{}:
	default:
	}
}

// begin notes that the caches are compared from now on. It returns what to close when they are alike,
// nil if no request has failed since the last time.
func (g *Guard) begin() (settled chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.interrupted:
	default:
	}
	if g.unsettled {
		g.unsettled, settled = false, g.settled
	}
	return settled
}

// Run works until ctx is done, and then returns nil. It returns an *Error when a cache is
// ahead of the API server: the process is to end. client may be any of the API server's.
func (g *Guard) Run(ctx context.Context, client rest.Interface, caches ...Cache) error {
	logger := klog.FromContext(ctx)
	var backoff wait.Backoff
	var asked time.Time
	var unsettled []chan struct{}
	for {
		if len(unsettled) == 0 {
			select {
			case <-ctx.Done():
				return nil
			case <-g.interrupted:
			}
		}
		if time.Since(asked) > quiet {
			backoff = wait.Backoff{Duration: firstAsk, Factor: 1.5, Jitter: 0.2, Steps: 100, Cap: lastAsk}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(backoff.Step()):
		}
		if c := g.begin(); c != nil {
			unsettled = append(unsettled, c)
		}
		err := compare(ctx, client, caches)
		asked = time.Now()
		if found := (*Error)(nil); errors.As(err, &found) {
			return err
		}
		if err != nil {
			logger.V(4).Info("Cannot ask yet whether the API server was restored from a backup", "err", err)
			continue
		}
		for _, c := range unsettled {
			close(c)
		}
		unsettled = nil
	}
}

// compare asks the API server for each cache's resource version now.
func compare(ctx context.Context, client rest.Interface, caches []Cache) error {
	var errs []error
	for _, c := range caches {
		seen := c.Informer.LastSyncResourceVersion() // before the API server is asked
		if seen == "" || seen == "0" {
			continue // nothing was read yet
		}
		current, err := c.current(ctx, client)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		older, err := Between(seen, current)
		if err != nil {
			errs = append(errs, fmt.Errorf("compare resource versions of %s: %w", c.Resource.Resource, err))
		} else if older {
			return &Error{c.Resource.GroupResource(), seen, current}
		}
	}
	return errors.Join(errs...)
}

// Between reports whether a backup was restored between two reads of one resource, by their resource
// versions. One that is older than the first read is noticed until as much has been written since.
func Between(seen, current string) (bool, error) {
	order, err := resourceversion.CompareResourceVersion(current, seen)
	return err == nil && (order < 0 || jumped(seen, current)), err
}

// jumped reports whether resource versions were bumped.
func jumped(seen, current string) bool {
	from, err := strconv.ParseUint(seen, 10, 64)
	to, err2 := strconv.ParseUint(current, 10, 64)
	return err == nil && err2 == nil && to > from && to-from >= bumped
}

// current is the resource version of a consistent read. A list of one object has it.
func (c Cache) current(ctx context.Context, client rest.Interface) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	at := path.Join("/apis", c.Resource.Group, c.Resource.Version, c.Resource.Resource)
	if c.Resource.Group == "" {
		at = path.Join("/api", c.Resource.Version, c.Resource.Resource)
	}
	request := client.Get().AbsPath(at).Param("limit", "1").SetHeader("Accept", "application/json")
	if c.FieldSelector != "" {
		request = request.Param("fieldSelector", c.FieldSelector)
	}
	data, err := request.DoRaw(ctx)
	if err != nil {
		return "", fmt.Errorf("list %s: %w", c.Resource.Resource, err)
	}
	var list struct{ Metadata metav1.ListMeta }
	if err := json.Unmarshal(data, &list); err != nil {
		return "", fmt.Errorf("list %s: %w", c.Resource.Resource, err)
	}
	return list.Metadata.ResourceVersion, nil
}

// transport tells the Guard of requests that were not answered.
type transport struct {
	next  http.RoundTripper
	guard *Guard
}

func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(request)
	if err != nil && request.Context().Err() == nil || err == nil && response.StatusCode >= http.StatusInternalServerError {
		t.guard.interrupt()
	}
	return response, err
}

// WrappedRoundTripper is for those who look for the connection beneath.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }
