package mdns

import (
	"net/netip"
	"slices"
	"time"
)

const (
	// answerTime is how long a record stands after a question by which it is in doubt. Who has it
	// answers within 120 ms (RFC 6762 6).
	answerTime = 500 * time.Millisecond

	// flushDelay is how long addresses stand that a cache-flush outdates, and how old
	// they must be for that (RFC 6762 10.2).
	flushDelay = time.Second

	// linkGrace is how long devices stand after their interface went down or away: a
	// switch that restarts is no reason to take them from pods.
	linkGrace = 10 * time.Second

	// minTTL and maxTTL bound what a record can ask for: a short TTL must leave time for questions, and a
	// forged record goes when nobody answers these. RFC 6762 10 recommends 2 and 75 minutes.
	minTTL, maxTTL = 10 * time.Second, 75 * time.Minute
)

// service is what is browsed for: the instances of a type, or of a subtype of it.
type service struct {
	query name   // the name of the PTR records, folded
	base  name   // what names of instances end with, folded: type and domain
	text  string // the type as in MDNS_TYPE, such as "_http._tcp"
}

// cache is what has been heard, and what is to be asked next. It does no I/O and has no
// clock: receive is told of each packet, and advance is called when due. Not safe for
// concurrent use.
type cache struct {
	services map[name]*browsed // by service.query
	links    map[int]*link     // by interface index
	random   func() float64    // in [0, 1)

	due     time.Time // when to call advance; zero for never
	changes uint64    // how often anything that snapshot shows has changed
	full    bool      // whether an instance was kept out for want of room, and there was none since
}

// browsed is a service with its users.
type browsed struct {
	service
	users int
	since time.Time
}

// link is what was heard on one interface. A name says nothing beyond it.
type link struct {
	up        bool
	gone      time.Time // when all of it goes, if the link is not up again
	device    string    // the interface's name
	prefixes  []netip.Prefix
	browses   map[name]*browse // by service.query; empty when not up
	instances map[name]*instance
	hosts     map[name]*host
}

// instance is one named service. It stays while it has a PTR record.
type instance struct {
	name     name
	ptrs     map[name]*entry // by service.query
	srv, txt *entry
	noTXT    bool // asked for in vain: there is none
	whole    bool // nothing was missing once
	resolve  resolve
}

// host has the addresses that SRV records lead to. It stays while any does.
type host struct {
	addresses map[netip.Addr]*entry
	users     int
}

// entry is a record in the cache.
type entry struct {
	data      string
	received  time.Time
	expires   time.Time
	ttl       time.Duration
	refreshes int       // how often it was asked for since received
	refreshAt time.Time // when to ask next, if before expires
	flushed   bool      // outdated by a cache-flush
	doubted   bool      // expires answerTime after the next question
}

func newCache(random func() float64) *cache {
	return &cache{services: map[name]*browsed{}, links: map[int]*link{}, random: random}
}

// addService starts to browse, or adds a user.
func (c *cache) addService(now time.Time, s service) {
	if b := c.services[s.query]; b != nil {
		b.users++
		return
	}
	c.services[s.query] = &browsed{service: s, users: 1, since: now}
	for _, l := range c.links {
		if l.up {
			l.browses[s.query] = c.newBrowse(now)
		}
	}
}

// removeService removes a user, with the last one the service and its instances.
func (c *cache) removeService(s service) {
	b := c.services[s.query]
	if b.users--; b.users > 0 {
		return
	}
	delete(c.services, s.query)
	for _, l := range c.links {
		delete(l.browses, s.query)
		for key, i := range l.instances {
			delete(i.ptrs, s.query)
			if len(i.ptrs) == 0 {
				l.remove(key)
			}
		}
	}
}

// addLink tells of an interface that is up, or of its new addresses. fresh makes it ask
// for everything anew.
func (c *cache) addLink(now time.Time, index int, device string, prefixes []netip.Prefix, fresh bool) {
	l := c.links[index]
	if l == nil {
		l = &link{instances: map[name]*instance{}, hosts: map[name]*host{}}
		c.links[index] = l
	}
	if l.device != device || !slices.Equal(l.prefixes, prefixes) {
		l.device, l.prefixes = device, prefixes
		c.changes++ // addresses are ranked by the prefixes
	}
	if l.up && !fresh {
		return
	}
	if !l.up { // what was heard before it went down may have gone meanwhile
		ask := now.Add(max(c.startDelay(), l.gone.Sub(now)-answerTime))
		l.each(func(e *entry) {
			e.doubted = false
			c.doubt(e, ask)
		})
	}
	l.up = true
	l.browses = map[name]*browse{}
	for query := range c.services {
		l.browses[query] = c.newBrowse(now)
	}
}

// loseLink tells of an interface that is down or gone. What was heard on it stands for
// linkGrace, unless the interface returns and it is heard again.
func (c *cache) loseLink(now time.Time, index int) {
	l := c.links[index]
	if l == nil || !l.up {
		return
	}
	l.up, l.browses, l.gone = false, nil, now.Add(linkGrace)
	c.wake(now) // removes the link at once if it is empty
}

// receive takes the records of a packet that came in at an interface.
func (c *cache) receive(now time.Time, index int, records []record) {
	l := c.links[index]
	if l == nil || !l.up {
		return
	}
	before := c.changes
	// Instances first, then hosts, then addresses, in whatever order they came.
	for _, r := range records {
		if r.rtype == typePTR {
			c.receivePTR(now, l, r)
		}
	}
	for _, r := range records {
		switch r.rtype {
		case typeSRV:
			c.receiveSRV(now, l, r)
		case typeTXT:
			c.receiveTXT(now, l, r)
		}
	}
	for _, r := range records {
		if r.rtype == typeA || r.rtype == typeAAAA {
			c.receiveAddress(now, l, r)
		}
	}
	for _, r := range records {
		if (r.rtype == typeA || r.rtype == typeAAAA) && r.flush && r.ttl > 0 {
			c.flush(now, l, r)
		}
	}
	if c.changes != before {
		// Something may be missing now. RFC 6762 5.2 has this delay.
		c.wake(now.Add(c.startDelay()))
	}
}

func (c *cache) receivePTR(now time.Time, l *link, r record) {
	s := c.services[r.name.fold()]
	if s == nil {
		return
	}
	target := name(r.data)
	label, rest := target.cut()
	if rest.fold() != s.base || !validLabel(label) {
		return
	}
	key := target.fold()
	i := l.instances[key]
	if r.ttl == 0 {
		if i != nil {
			c.goodbye(now, i.ptrs[s.query])
		}
		return
	}
	if i == nil {
		if !c.hasRoom(l) {
			c.full = true
			return
		}
		i = &instance{name: target, ptrs: map[name]*entry{}}
		l.instances[key] = i
	}
	i.ptrs[s.query] = c.renew(now, i.ptrs[s.query], r)
}

func (c *cache) receiveSRV(now time.Time, l *link, r record) {
	i := l.instances[r.name.fold()]
	// Port 0 and the root say that the service is not there (RFC 6763 8, RFC 2782).
	if i == nil || srvPort(r.data) == 0 || !validHost(srvTarget(r.data)) {
		return
	}
	if i.srv == nil || i.srv.data != r.data {
		if r.ttl == 0 {
			return
		}
		// The record is unique: the one before is outdated.
		l.acquire(r)
		l.release(i.srv)
		i.srv = nil
	}
	if r.ttl == 0 {
		c.goodbye(now, i.srv)
		return
	}
	i.srv = c.renew(now, i.srv, r)
}

func (c *cache) receiveTXT(now time.Time, l *link, r record) {
	i := l.instances[r.name.fold()]
	switch {
	case i == nil:
	case r.ttl > 0:
		i.txt = c.renew(now, i.txt, r)
		i.noTXT = false
	case i.txt != nil && i.txt.data == r.data:
		c.goodbye(now, i.txt)
	}
}

func (c *cache) receiveAddress(now time.Time, l *link, r record) {
	h, address := l.hosts[r.name.fold()], r.address()
	if h == nil || !usable(address) {
		return
	}
	if r.ttl == 0 {
		c.goodbye(now, h.addresses[address])
		return
	}
	if h.addresses[address] == nil && len(h.addresses) >= maxAddresses {
		return
	}
	h.addresses[address] = c.renew(now, h.addresses[address], r)
}

// flush outdates the host's other addresses of the record's type, unless they have been
// received in the last second: those are the same announcement's.
func (c *cache) flush(now time.Time, l *link, r record) {
	h := l.hosts[r.name.fold()]
	if h == nil {
		return
	}
	for address, e := range h.addresses {
		if address.Is4() == (r.rtype == typeA) && now.Sub(e.received) > flushDelay && !e.flushed {
			e.flushed = true
			c.changes++
			c.doubt(e, now.Add(flushDelay-answerTime))
		}
	}
}

// renew returns the entry of a record that was received, which is e if there is one.
func (c *cache) renew(now time.Time, e *entry, r record) *entry {
	if e == nil {
		e = &entry{}
	}
	if e.data != r.data || e.received.IsZero() || e.flushed {
		c.changes++
	}
	ttl := min(max(time.Duration(r.ttl)*time.Second, minTTL), maxTTL)
	*e = entry{data: r.data, received: now, expires: now.Add(ttl), ttl: ttl}
	c.planRefresh(e)
	c.wake(e.next())
	return e
}

// goodbye takes the goodbye of a record, which may be nil. Anybody can have said it, so that the record
// is asked for: not within a second of the last answer, after which nobody answers again (RFC 6762 6).
func (c *cache) goodbye(now time.Time, e *entry) {
	if e != nil {
		c.doubt(e, now.Add(max(c.startDelay(), time.Second-now.Sub(e.received))))
	}
}

// doubt has a record asked for at a time, and expire if there is no answer.
func (c *cache) doubt(e *entry, ask time.Time) {
	if !e.doubted {
		e.doubted, e.refreshAt, e.expires = true, ask, ask.Add(answerTime)
		c.wake(ask)
	}
}

// remove removes an instance.
func (l *link) remove(key name) {
	l.release(l.instances[key].srv)
	delete(l.instances, key)
}

// acquire makes sure of the host that a SRV record leads to.
func (l *link) acquire(srv record) {
	key := srvTarget(srv.data).fold()
	if l.hosts[key] == nil {
		l.hosts[key] = &host{addresses: map[netip.Addr]*entry{}}
	}
	l.hosts[key].users++
}

// release gives up the host that a SRV record, which may be nil, leads to.
func (l *link) release(srv *entry) {
	if srv == nil {
		return
	}
	key := srvTarget(srv.data).fold()
	if h := l.hosts[key]; h.users > 1 {
		h.users--
	} else {
		delete(l.hosts, key)
	}
}

// each calls f for each record.
func (l *link) each(f func(*entry)) {
	for _, i := range l.instances {
		for _, e := range i.ptrs {
			f(e)
		}
		if i.srv != nil {
			f(i.srv)
		}
		if i.txt != nil {
			f(i.txt)
		}
	}
	for _, h := range l.hosts {
		for _, e := range h.addresses {
			f(e)
		}
	}
}

// usable is false for addresses that lead nowhere, or, on another host, elsewhere.
func usable(a netip.Addr) bool {
	return a.IsValid() && !a.Is4In6() && !a.IsUnspecified() && !a.IsLoopback() && !a.IsMulticast() &&
		a != netip.AddrFrom4([4]byte{255, 255, 255, 255})
}
