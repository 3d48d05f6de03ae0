package mdns

import (
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/discovery/netif"
)

// A host on the network can announce as many instances as it likes. They are bounded,
// asked for at a bounded rate, and forgotten when nothing is behind them.
func TestInstancesWithoutEnd(t *testing.T) {
	c := newCache(func() float64 { return 0 })
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s, err := parseService("_http._tcp")
	if err != nil {
		t.Fatal(err)
	}
	c.addService(now, s)
	c.addLink(now, 2, "eth0", []netip.Prefix{netip.MustParsePrefix("10.0.0.5/24")}, true)
	ptr := func(label string) record {
		return record{name: s.query, rtype: typePTR, ttl: 1 << 31, data: string(wireName(t, label, "_http", "_tcp", "local"))}
	}
	var packet []record
	for i := range maxInstances + 1000 {
		packet = append(packet, ptr(fmt.Sprint("x", i)))
	}
	c.receive(now, 2, packet)
	if got := len(c.links[2].instances); got != maxInstances {
		t.Errorf("%d instances are kept, want %d", got, maxInstances)
	}
	if !c.full {
		t.Error("nobody is told that there are more")
	}

	start, asked := now, 0
	for !c.due.IsZero() && now.Sub(start) < 2*time.Minute {
		now = c.due
		for _, a := range c.advance(now) {
			asked += len(a.questions)
			if len(a.questions) > maxQuestions || len(a.known) > maxKnownAnswers {
				t.Fatalf("%d questions and %d known answers at a time", len(a.questions), len(a.known))
			}
		}
	}
	if most := int(now.Sub(start)/tick) * maxQuestions; asked > most {
		t.Errorf("%d questions asked in %v, want at most %d", asked, now.Sub(start), most)
	}
	if got := len(c.links[2].instances); got != 0 {
		t.Errorf("%d instances are left that nothing is behind", got)
	}

	// There is room for real ones again.
	lamp := wireName(t, "Lamp", "_http", "_tcp", "local")
	host := wireName(t, "lamp", "local")
	c.receive(now, 2, []record{
		ptr("Lamp"),
		{name: lamp, rtype: typeSRV, ttl: 120, data: "\x00\x00\x00\x00\x00\x50" + string(host)},
		{name: lamp, rtype: typeTXT, ttl: 120},
		{name: host, rtype: typeA, ttl: 120, data: "\x0a\x00\x00\x07"},
	})
	if found := c.snapshot(s); len(found) != 1 || found[0].label != "Lamp" {
		t.Errorf("found %+v, want the lamp", found)
	}
}

// Floods on many interfaces are bounded together, and leave room on others.
func TestInstancesOfManyInterfaces(t *testing.T) {
	c := newCache(func() float64 { return 0 })
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s := mustService(t, "_http._tcp")
	c.addService(now, s)
	const interfaces = 32
	flood := make([]record, maxInstances)
	for i := range flood {
		instance := wireName(t, fmt.Sprint("x", i), "_http", "_tcp", "local")
		flood[i] = record{name: s.query, rtype: typePTR, ttl: 120, data: string(instance)}
	}
	for index := range interfaces {
		c.addLink(now, index, fmt.Sprint("eth", index), nil, true)
	}
	all := 0
	for index := range interfaces - 1 {
		c.receive(now, index, flood)
		all += len(c.links[index].instances)
	}
	if all < maxAllInstances || all > 2*maxAllInstances {
		t.Errorf("%d instances are kept, want %d to %d", all, maxAllInstances, 2*maxAllInstances)
	}
	const quiet, devices = interfaces - 1, maxAllInstances / interfaces
	c.receive(now, quiet, flood[:devices])
	if got := len(c.links[quiet].instances); got != devices {
		t.Errorf("%d of %d instances on the interface without a flood", got, devices)
	}
}

// A warning ends with its cause: a later subscriber does not get it.
func TestWarningsEnd(t *testing.T) {
	b := newBrowser(klog.Background(), nil)
	link := netif.Interface{Index: 2, Name: "eth0"}
	s := mustService(t, "_http._tcp")
	b.cache.addService(time.Now(), s)
	flood := make([]record, maxInstances+1)
	for i := range flood {
		instance := wireName(t, fmt.Sprint("x", i), "_http", "_tcp", "local")
		flood[i] = record{name: s.query, rtype: typePTR, ttl: 120, data: string(instance)}
	}
	for i, step := range []struct {
		all   []netif.Interface
		flood []record
		want  []string
	}{
		{nil, nil, []string{netif.None}},
		{[]netif.Interface{link}, nil, nil},
		{[]netif.Interface{link}, flood, []string{tooMany}},
		{[]netif.Interface{link}, nil, []string{tooMany}}, // for as long as they are there, whatever is announced
		{[]netif.Interface{link}, nil, nil},
	} {
		if step.want == nil && i > 1 { // what was made up is gone
			clear(b.cache.links[2].instances)
		}
		s := b.subscribe(nil)
		b.update(step.all, map[int]bool{2: len(step.all) > 0}, nil, nil)
		b.receive(2, step.flood)
		if got := b.look(s).warnings; !slices.Equal(got, step.want) {
			t.Errorf("step %d: warnings %q, want %q", i, got, step.want)
		}
		b.unsubscribe(s)
	}
}

// As many instances as there may be, each with all that one may have, leave the worker room
// for what other handlers hear: it has 256 MiB in all.
func TestMemoryOfAFlood(t *testing.T) {
	c := newCache(func() float64 { return 0 })
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s := mustService(t, "_http._tcp")
	d, err := parse(discovery.Request{Details: "services: [_http._tcp]"})
	if err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	c.addService(now, s)
	c.addLink(now, 2, "eth0", nil, true)
	for i := range maxInstances + 100 {
		label, long := fmt.Sprintf("%063d", i), strings.Repeat("h", 63)
		host := wireName(t, long, long, label, "local")
		instance := wireName(t, label, "_http", "_tcp", "local")
		m := &dns.Msg{MsgHdr: dns.MsgHdr{Response: true}}
		var txt []string
		for k := range 4000 {
			txt = append(txt, fmt.Sprint(k % 1000)[:1])
		}
		m.Answer = []dns.RR{&dns.TXT{Hdr: header(instance.String()+".", dns.TypeTXT, dns.ClassINET, 120), Txt: txt}}
		records, err := parseResponse(pack(t, m))
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, record{name: s.query, rtype: typePTR, ttl: 120, data: string(instance)},
			record{name: instance, rtype: typeSRV, ttl: 120, data: "\x00\x00\x00\x00\x00\x50" + string(host)})
		for a := range maxAddresses {
			records = append(records,
				record{name: host, rtype: typeA, ttl: 120, data: string([]byte{10, 0, 0, byte(a)})})
		}
		c.receive(now, 2, records)
	}
	devices := d.devices(c.snapshot(s), nil)
	if len(devices) != maxInstances {
		t.Errorf("%d devices, want %d", len(devices), maxInstances)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if took := int64(after.HeapAlloc) - int64(before.HeapAlloc); took > 22<<20 { // 28 MiB with whole TXT records
		t.Errorf("%d MiB are held", took>>20)
	}
	runtime.KeepAlive(c)
	runtime.KeepAlive(devices)
}

// Records with a TTL of a second must not keep us asking all the time.
func TestShortTTLs(t *testing.T) {
	c := newCache(func() float64 { return 0 })
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s, err := parseService("_http._tcp")
	if err != nil {
		t.Fatal(err)
	}
	c.addService(now, s)
	c.addLink(now, 2, "eth0", nil, true)
	var packet []record
	for i := range maxInstances {
		packet = append(packet, record{name: s.query, rtype: typePTR, ttl: 1, data: string(wireName(t, fmt.Sprint("x", i), "_http", "_tcp", "local"))})
	}
	seconds := 10
	if testing.Short() {
		seconds = 2
	}
	start, turns, ptrs := now, 0, 0
	for now.Sub(start) < time.Duration(seconds)*time.Second {
		c.receive(now, 2, packet)
		for end := now.Add(990 * time.Millisecond); now.Before(end); now = c.due {
			turns++
			for _, a := range c.advance(now) {
				for _, q := range a.questions {
					if q.rtype == typePTR {
						ptrs++
					}
				}
			}
		}
	}
	if most := seconds * int(time.Second/tick) * 2; turns > most {
		t.Errorf("%d turns in %d s, want at most %d", turns, seconds, most)
	}
	if ptrs > seconds+2 {
		t.Errorf("the service was asked for %d times in %d s, want at most once a second", ptrs, seconds)
	}
}

// What does not come from the port of multicast DNS is no response (RFC 6762 6).
func TestAnotherPort(t *testing.T) {
	if !inNewNamespace(t) {
		return
	}
	peer := newNeighbour(t)
	peer.cable("eth0", []string{"10.7.0.1/24"}, []string{"10.7.0.2/24"})
	d := discover(t, &Handler{}, "services: [_http._tcp]")
	d.waitForIDs()
	stranger := peer.dial("10.7.0.2:9999")
	if _, err := stranger.Write(lamp(t, 120, "10.7.0.66")); err != nil {
		t.Fatal(err)
	}
	// What comes later, and counts, shows that the first had its chance.
	send(t, peer.open("eth0", false), lamp(t, 120, "10.7.0.2"))
	d.waitForIDs("Lamp._http._tcp")
	if got := d.last.Devices[0].Properties[AddressesProperty]; got != "10.7.0.2" {
		t.Errorf("addresses %q, want 10.7.0.2 alone", got)
	}
}
