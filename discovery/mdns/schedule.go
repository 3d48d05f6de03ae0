package mdns

import (
	"cmp"
	"slices"
	"time"
)

const (
	minBrowseInterval = time.Second // RFC 6762 5.2, as the next two
	maxBrowseInterval = time.Hour
	minStartDelay     = 20 * time.Millisecond

	// Records are asked for when these parts of their TTL have passed, and up to
	// refreshJitter more (RFC 6762 5.2).
	firstRefresh  = 0.80
	refreshStep   = 0.05
	refreshJitter = 0.02
	maxRefreshes  = 4

	// maxResolves is how often what an instance lacks is asked for, at intervals of 1,
	// 2 and 4 s. Then the instance is dropped, or does without TXT.
	maxResolves = 3

	// tick is what due times are rounded up to, and maxQuestions how many are asked in
	// one, with how many known answers: a flood of records must not keep us, or the
	// network, busy.
	tick            = 50 * time.Millisecond
	maxQuestions    = 32
	maxKnownAnswers = 256
)

// browse is when to ask for a service's instances.
type browse struct {
	next     time.Time
	interval time.Duration // until the one after
	asked    time.Time     // when last
}

// resolve is when to ask for what an instance lacks. The zero value is "lacks nothing".
type resolve struct {
	next  time.Time
	tries int
}

// ask is what to send at an interface.
type ask struct {
	link      int
	questions []question
	known     []knownAnswer
}

// startDelay is how long to wait before a first question, so that not all hosts that
// heard the same ask at once (RFC 6762 5.2: 20 to 120 ms).
func (c *cache) startDelay() time.Duration {
	return minStartDelay + time.Duration(c.random()*float64(100*time.Millisecond))
}

func (c *cache) newBrowse(now time.Time) *browse {
	b := &browse{next: now.Add(c.startDelay()), interval: minBrowseInterval}
	c.wake(b.next)
	return b
}

// wake makes due no later than t.
func (c *cache) wake(t time.Time) {
	if c.due.IsZero() || t.Before(c.due) {
		c.due = t
	}
}

// next is when the record needs something.
func (e *entry) next() time.Time {
	if e.refreshAt.Before(e.expires) {
		return e.refreshAt
	}
	return e.expires
}

func (c *cache) planRefresh(e *entry) {
	e.refreshAt = e.expires
	if e.refreshes < maxRefreshes {
		part := firstRefresh + refreshStep*float64(e.refreshes) + refreshJitter*c.random()
		e.refreshAt = e.received.Add(time.Duration(part * float64(e.ttl)))
	}
}

// advance drops what has expired and returns what to ask now.
func (c *cache) advance(now time.Time) []ask {
	c.due = time.Time{}
	var asks []ask
	for index, l := range c.links {
		switch {
		case l.up:
		case len(l.instances) > 0 && l.gone.After(now):
			c.wake(l.gone)
			continue
		default:
			delete(c.links, index)
			c.changes++
			continue
		}
		turn := turn{cache: c, link: l, now: now, asked: map[question]bool{}}
		turn.run()
		if len(turn.asked) > 0 {
			asks = append(asks, turn.ask(index))
		}
	}
	slices.SortFunc(asks, func(a, b ask) int { return cmp.Compare(a.link, b.link) })
	return asks
}

// turn is advance for one link.
type turn struct {
	*cache
	link  *link
	now   time.Time
	asked map[question]bool
}

func (t *turn) run() {
	for query, b := range t.link.browses {
		if !b.next.After(t.now) && t.want(question{query, typePTR}) {
			b.next = t.now.Add(b.interval)
			b.interval = min(2*b.interval, maxBrowseInterval)
		}
		t.wakeNext(b.next)
	}
	for key, h := range t.link.hosts {
		for address, e := range h.addresses {
			rtype := typeAAAA
			if address.Is4() {
				rtype = typeA
			}
			if t.expired(e, question{key, rtype}) {
				delete(h.addresses, address)
			}
		}
	}
	for key, i := range t.link.instances {
		t.instance(key, i)
	}
}

func (t *turn) instance(key name, i *instance) {
	for query, e := range i.ptrs {
		if t.expired(e, question{query, typePTR}) {
			delete(i.ptrs, query)
			t.lost(i, query)
		}
	}
	if len(i.ptrs) == 0 {
		t.link.remove(key)
		return
	}
	if i.srv != nil && t.expired(i.srv, question{key, typeSRV}) {
		t.link.release(i.srv)
		i.srv = nil
	}
	if i.txt != nil && t.expired(i.txt, question{key, typeTXT}) {
		i.txt, i.noTXT = nil, true
	}
	missing := t.link.missing(key, i)
	switch {
	case len(missing) == 0:
		i.resolve, i.whole = resolve{}, true
		return
	case i.resolve.next.After(t.now):
	case i.resolve.tries == maxResolves:
		i.resolve = resolve{}
		t.changes++
		if !i.hasAddress(t.link) {
			for query := range i.ptrs {
				t.lost(i, query)
			}
			t.link.remove(key)
			return
		}
		i.noTXT = true
		return
	case t.want(missing...):
		i.resolve.next = t.now.Add(time.Second << i.resolve.tries)
		i.resolve.tries++
	}
	t.wakeNext(i.resolve.next)
}

// lost has a service asked for as at the start, since an instance of it is gone: it may be back soon,
// or was never gone, as when packets were lost. Instances that never were whole may be made up.
func (t *turn) lost(i *instance, query name) {
	if b := t.link.browses[query]; i.whole {
		b.next, b.interval = t.now.Add(max(t.startDelay(), minBrowseInterval-t.now.Sub(b.asked))), minBrowseInterval
		t.wakeNext(b.next)
	}
}

// expired is whether a record is to be dropped. If not, it is asked for when it is time.
func (t *turn) expired(e *entry, q question) bool {
	ask := e.refreshAt.Before(e.expires) && !e.refreshAt.After(t.now)
	switch {
	case !e.expires.After(t.now) && !(ask && e.doubted):
		t.changes++
		return true
	case !ask || !t.want(q):
	case e.doubted:
		e.expires = t.now.Add(answerTime)
		e.refreshAt = e.expires
	default:
		e.refreshes++
		t.planRefresh(e)
	}
	t.wakeNext(e.next())
	return false
}

// want adds questions to be asked now. It returns false when these do not fit any more, or when a
// service was asked for less than a second ago: they stay due.
func (t *turn) want(questions ...question) bool {
	if len(t.asked)+len(questions) > maxQuestions {
		return false
	}
	for _, q := range questions {
		// Many records of one service may want the same question.
		if b := t.link.browses[q.name]; b != nil && q.rtype == typePTR && !t.asked[q] {
			if t.now.Sub(b.asked) < minBrowseInterval {
				return false
			}
			b.asked = t.now
		}
		t.asked[q] = true
	}
	return true
}

// wakeNext is wake, but not before the next tick.
func (t *turn) wakeNext(next time.Time) {
	if earliest := t.now.Add(tick); next.Before(earliest) {
		next = earliest
	}
	t.wake(next)
}

func (t *turn) ask(index int) ask {
	a := ask{link: index}
	for q := range t.asked {
		a.questions = append(a.questions, q)
	}
	slices.SortFunc(a.questions, func(a, b question) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.rtype, b.rtype))
	})
	for key, i := range t.link.instances {
		if len(t.link.missing(key, i)) > 0 {
			continue // the answer may bring what is missing
		}
		for query, e := range i.ptrs {
			// More than half of the TTL must be left (RFC 6762 7.1).
			if left := e.expires.Sub(t.now); t.asked[question{query, typePTR}] && left > e.ttl/2 {
				a.known = append(a.known, knownAnswer{service: query, instance: i.name, ttl: uint32(left / time.Second)})
			}
		}
	}
	slices.SortFunc(a.known, func(a, b knownAnswer) int {
		return cmp.Or(cmp.Compare(a.service, b.service), cmp.Compare(a.instance, b.instance))
	})
	a.known = a.known[:min(len(a.known), maxKnownAnswers)]
	return a
}

// missing is what must be asked for before the instance can be shown.
func (l *link) missing(key name, i *instance) (questions []question) {
	if i.srv == nil {
		questions = append(questions, question{key, typeSRV})
	} else if !i.hasAddress(l) {
		host := srvTarget(i.srv.data).fold()
		questions = append(questions, question{host, typeA}, question{host, typeAAAA})
	}
	if i.txt == nil && !i.noTXT {
		questions = append(questions, question{key, typeTXT})
	}
	return questions
}

func (i *instance) hasAddress(l *link) bool {
	return i.srv != nil && len(l.hosts[srvTarget(i.srv.data).fold()].addresses) > 0
}
