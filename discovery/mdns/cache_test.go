package mdns

import (
	"fmt"
	"net/netip"
	"testing"
	"time"
)

// Whatever comes in whatever order, the cache stays consistent, what it shows is whole,
// and without news it is empty in the end.
func FuzzCache(f *testing.F) {
	f.Add([]byte("\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x10\x20\x30\x40\x50\x60\x70\x80\x90\xa0"))
	f.Add([]byte{9, 1, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff})
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) > 300 {
			return
		}
		c := newCache(func() float64 { return 0.5 })
		now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		services := []service{mustService(t, "_a._tcp"), mustService(t, "_b._tcp"), mustService(t, "_s._sub._a._tcp")}
		users := map[int]int{0: 1}
		c.addService(now, services[0])
		c.addLink(now, 1, "eth1", nil, true)
		host := func(n byte) name { return wireName(t, fmt.Sprint("h", n%3), "local") }
		for i := 0; i+1 < len(script); i += 2 {
			op, arg := script[i], script[i+1]
			link, which := int(arg&1)+1, int(arg>>1)%len(services)
			ttl := []uint32{0, 1, 120, 4500}[arg>>6]
			s := services[which]
			instance := name(string(wireName(t, fmt.Sprint("i", arg>>2&3))) + string(s.base))
			switch op % 10 {
			case 0:
				c.addService(now, s)
				users[which]++
			case 1:
				if users[which] > 0 {
					c.removeService(s)
					users[which]--
				}
			case 2:
				c.addLink(now, link, fmt.Sprint("eth", link), []netip.Prefix{netip.MustParsePrefix("10.0.0.0/30")}, arg&0x80 != 0)
			case 3:
				c.loseLink(now, link)
			case 4, 5:
				c.receive(now, link, []record{
					{name: host(arg), rtype: typeA, ttl: ttl, flush: op&0x80 != 0, data: string([]byte{10, 0, 0, arg>>3 | 1})},
					{name: instance, rtype: typeSRV, ttl: ttl, data: string([]byte{0, 0, 0, 0, 0, 80}) + string(host(op>>4))},
					{name: s.query, rtype: typePTR, ttl: ttl, data: string(instance)},
				})
			case 6:
				c.receive(now, link, []record{{name: instance, rtype: typeTXT, ttl: ttl, data: "\x01a"}})
			case 7:
				c.receive(now, link, []record{{name: host(arg), rtype: typeA, ttl: ttl, flush: arg&8 != 0, data: string([]byte{10, 0, 0, arg})}})
			case 8:
				now = now.Add(time.Duration(arg) * 10 * time.Millisecond)
				c.advance(now)
			case 9:
				now = now.Add(time.Duration(arg) * time.Second)
				c.advance(now)
			}
			check(t, c)
			for _, s := range services {
				for _, found := range c.snapshot(s) {
					if len(found.addresses) == 0 || found.port == 0 || found.host == "" {
						t.Fatalf("half an instance: %+v", found)
					}
					_ = found.device(nil)
				}
			}
		}
		for link := 1; link <= 2; link++ {
			c.loseLink(now, link)
		}
		for range 1000 {
			if c.due.IsZero() {
				break
			}
			now = c.due
			c.advance(now)
		}
		if len(c.links) > 0 || !c.due.IsZero() {
			t.Errorf("%d links are left, and it is due at %v", len(c.links), c.due)
		}
	})
}

func mustService(t *testing.T, text string) service {
	t.Helper()
	s, err := parseService(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// check checks what must be true at any time.
func check(t *testing.T, c *cache) {
	t.Helper()
	for index, l := range c.links {
		users := map[name]int{}
		for key, i := range l.instances {
			if len(i.ptrs) == 0 {
				t.Fatalf("link %d: instance %s is there without a service", index, key)
			}
			for query := range i.ptrs {
				if c.services[query] == nil {
					t.Fatalf("link %d: instance %s of %s, which nobody browses for", index, key, query)
				}
			}
			if i.srv != nil {
				users[srvTarget(i.srv.data).fold()]++
			}
		}
		for key, h := range l.hosts {
			if h.users != users[key] {
				t.Fatalf("link %d: host %s has %d users, counted %d", index, key, users[key], h.users)
			}
			delete(users, key)
		}
		if len(users) > 0 {
			t.Fatalf("link %d: hosts that are not there: %v", index, users)
		}
		l.each(func(e *entry) {
			goes := e.expires
			if !l.up {
				goes = l.gone
			}
			if c.due.IsZero() || c.due.After(goes.Add(tick)) {
				t.Fatalf("link %d: a record goes at %v, but the cache is due at %v", index, goes, c.due)
			}
		})
	}
}
