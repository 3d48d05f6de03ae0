package onvif

import (
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/discovery"
)

const (
	// maxQueries bounds the cameras that one Configuration asks at a time.
	maxQueries = 8

	// minQueryInterval is the least time between two questions to a camera.
	minQueryInterval = 10 * time.Second

	// maxQueryInterval is the most time until a camera that does not answer is asked
	// again, or one that refused the login: cameras lock out who fails too often.
	maxQueryInterval, maxLoginInterval = 5 * time.Minute, 30 * time.Minute

	firstLoginInterval = time.Minute

	// maxWarnings bounds the cameras that the user is warned of, because they do not tell
	// their addresses.
	maxWarnings = 100

	// maxUnansweredWarnings bounds those of cameras that do not answer: whoever is on the
	// network can announce any number of them, and kubecri takes 16 warnings in all.
	maxUnansweredWarnings = 8
)

// query is what one Configuration asks the cameras: their addresses. It belongs to
// one goroutine.
type query struct {
	details     details
	credentials credentials
	request     discovery.Request
	client      *client
	results     chan queryResult
	facts       map[factKey]*fact
	running     int
	warned      map[warned]bool
	unanswered  map[string]bool               // warned of, by UUID
	last        map[string][]discovery.Device // of the last result, by UUID
}

// warned is what the user was warned of: that a camera does not tell its addresses, or
// refuses to.
type warned struct {
	uuid    string
	refused bool
}

type factKey struct{ uuid, xaddr string }

// fact is what a service told.
type fact struct {
	network network
	version string // of the camera when it was asked
	known   bool   // it was asked: its device can be reported
	asking  bool
	due     time.Time     // when to ask at the earliest
	backoff time.Duration // after the last failure; 0 after a success
}

type queryResult struct {
	fact    *fact
	uuid    string
	xaddr   string
	network network
	err     error
}

func newQuery(d details, request discovery.Request, client *client) *query {
	return &query{
		details: d, credentials: parseCredentials(request), request: request, client: client,
		// Room for all that run: none of them waits for a Discover that has ended.
		results: make(chan queryResult, maxQueries), facts: map[factKey]*fact{}, warned: map[warned]bool{},
		unanswered: map[string]bool{},
	}
}

// start asks the candidates that are to be asked now. It returns whether there are some
// of which nothing is known yet, and when to call it again at the latest; zero for never.
func (q *query) start(ctx context.Context, candidates []candidate, now time.Time) (pending bool, next time.Time) {
	type turn struct {
		*fact
		of candidate
		at verified
	}
	var turns []turn
	old := q.facts
	q.facts = make(map[factKey]*fact, len(candidates))
	for _, c := range candidates {
		pending = pending || len(c.devices) == 0
		for _, v := range c.devices {
			key := factKey{c.uuid, v.xaddr}
			f := old[key]
			if f == nil {
				f = &fact{}
			}
			q.facts[key] = f
			pending = pending || !f.known
			if f.asking || f.known && f.backoff == 0 && f.version == c.version {
				continue
			}
			if now.Before(f.due) {
				next = earlier(next, f.due)
				continue
			}
			turns = append(turns, turn{f, c, v})
		}
	}
	// Who waits longest goes first: those that never answer keep no other waiting.
	slices.SortStableFunc(turns, func(a, b turn) int { return a.due.Compare(b.due) })
	for _, t := range turns[:min(len(turns), maxQueries-q.running)] { // the next result calls for the others
		t.asking, t.version, t.due = true, t.of.version, now.Add(minQueryInterval)
		q.running++
		login := q.credentials.of(t.of.uuid)
		go func() {
			n, err := q.client.network(ctx, t.at.target, login, t.at.offset)
			q.results <- queryResult{t.fact, t.of.uuid, t.at.xaddr, n, err}
		}()
	}
	return pending, next
}

// finish takes a result.
func (q *query) finish(ctx context.Context, r queryResult, now time.Time) {
	q.running--
	f := r.fact
	f.asking, f.known = false, true
	if r.err == nil {
		f.network, f.backoff = r.network, 0
		return
	}
	// What it told before stands.
	least, most := minQueryInterval, maxQueryInterval
	if errors.Is(r.err, errNotAuthorized) {
		least, most = firstLoginInterval, maxLoginInterval
	}
	f.backoff = min(max(2*f.backoff, least), most)
	f.due = now.Add(f.backoff)
	klog.FromContext(ctx).V(2).Info("Cannot ask a camera for its addresses", "handler", Name,
		"uuid", r.uuid, "again", f.backoff, "err", r.err)
	q.warn(r)
}

// warn tells the user, once for each camera and kind of failure, of what a user can do
// something about.
func (q *query) warn(r queryResult) {
	uuid, key := r.uuid, warned{r.uuid, errors.Is(r.err, errNotAuthorized)}
	login := q.credentials.of(uuid) != nil
	if q.warned[key] || len(q.warned) >= maxWarnings || !login && !q.details.needsNetwork() {
		return
	}
	q.warned[key] = true
	consequence := "its IP and MAC address are not known"
	if q.details.needsNetwork() {
		consequence = "the filters ipAddresses and macAddresses leave it out"
	}
	switch {
	case !key.refused:
		q.request.Warnf("onvif: camera %s: %v, so %s", uuid, r.err, consequence)
	case login:
		q.request.Warnf("onvif: camera %s at %s refused the login that discoveryProperties have for it, so %s", uuid,
			r.xaddr, consequence)
	default:
		q.request.Warnf("onvif: camera %s at %s wants a login, and discoveryProperties have none for it, so %s", uuid,
			r.xaddr, consequence)
	}
}

// warnUnanswered warns the user, once for each, of cameras that the Configuration may
// want, and that do not answer. It does not list them when it may not warn any more: a
// flood of them changes all the time.
func (q *query) warnUnanswered(list func() []unanswered) {
	if len(q.unanswered) >= maxUnansweredWarnings {
		return
	}
	for _, c := range list() {
		address := hostAddress(c.xaddr)
		if q.unanswered[c.uuid] || len(q.unanswered) >= maxUnansweredWarnings ||
			!q.details.keeps(c.camera) || address.IsValid() && !q.details.IPAddresses.KeepsFold(address.String()) {
			continue
		}
		q.unanswered[c.uuid] = true
		q.request.Warnf("onvif: camera %s, announced by %s, cannot be asked, and is left out: %v", c.uuid,
			c.source, c.err)
	}
}

// result returns the devices. Until enough is known of all that a camera is now, it is
// what it was in the last result.
func (q *query) result(candidates []candidate) discovery.Result {
	result, last := discovery.Result{Shared: true}, q.last
	q.last = make(map[string][]discovery.Device, len(candidates))
	for _, c := range candidates {
		devices, ok := q.devices(c)
		if !ok {
			devices = last[c.uuid]
		}
		q.last[c.uuid] = devices
		result.Devices = append(result.Devices, devices...)
	}
	return result
}

// devices is false when something of a camera is not known yet.
func (q *query) devices(c candidate) (devices []discovery.Device, ok bool) {
	for _, v := range c.devices {
		f := q.facts[factKey{c.uuid, v.xaddr}]
		if f == nil || !f.known {
			return nil, false
		}
		if device, ok := q.details.device(c.camera, v, f.network); ok {
			devices = append(devices, device)
		}
	}
	return devices, len(c.devices) > 0
}
