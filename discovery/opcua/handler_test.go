package opcua

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/test/await"
)

// quick is how often the tests' URLs are asked.
const quick = 50 * time.Millisecond

// discovering is a Discover that runs until the test ends.
type discovering struct {
	t       *testing.T
	mu      sync.Mutex
	reports []discovery.Result
	warned  []string
	changed chan struct{} // has room for one
	cancel  context.CancelFunc
	done    chan error
}

func discover(t *testing.T, h *Handler, details string) *discovering {
	t.Helper()
	if h.Interval == 0 {
		h.Interval = quick
	}
	if h.answers == nil { // what the tests' servers name, nobody is at
		h.answers = func(context.Context, target, string) error { return nil }
	}
	ctx, cancel := context.WithCancel(t.Context())
	d := &discovering{t: t, cancel: cancel, done: make(chan error, 1)}
	note := func(add func()) {
		d.mu.Lock()
		defer d.mu.Unlock()
		add()
	}
	request := discovery.Request{Details: details, Warn: func(text string) { note(func() { d.warned = append(d.warned, text) }) }}
	go func() {
		d.done <- h.Discover(ctx, request, func(r discovery.Result) { note(func() { d.reports = append(d.reports, r) }) })
	}()
	t.Cleanup(d.end)
	return d
}

// end checks that Discover ends at once when its context does.
func (d *discovering) end() {
	if d.cancel == nil {
		return
	}
	d.cancel()
	d.cancel = nil
	if err := await.Next(d.t, "the end of Discover", d.done); !errors.Is(err, context.Canceled) {
		d.t.Errorf("Discover() = %v after its context ended", err)
	}
}

// await waits until something holds of all reports and warnings.
func (d *discovering) await(what string, holds func() bool) {
	d.t.Helper()
	await.That(d.t, what, func() (bool, string) {
		d.mu.Lock()
		defer d.mu.Unlock()
		select {
		case err := <-d.done:
			d.t.Fatalf("Discover() = %v", err)
		default:
		}
		return holds(), fmt.Sprintf("reports: %v\nwarnings: %q", d.reports, d.warned)
	})
}

// wants waits until the last report has these devices' IDs.
func (d *discovering) wants(what string, ids ...string) {
	d.t.Helper()
	slices.Sort(ids)
	d.await(what, func() bool {
		if len(d.reports) == 0 {
			return false
		}
		var got []string
		for _, device := range d.reports[len(d.reports)-1].Devices {
			got = append(got, device.ID)
		}
		return slices.Equal(got, ids)
	})
}

// warns waits until there is a warning with these parts.
func (d *discovering) warns(parts ...string) {
	d.t.Helper()
	d.await(fmt.Sprintf("a warning with %q", parts), func() bool {
		return slices.ContainsFunc(d.warned, func(warning string) bool {
			return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(warning, part) })
		})
	})
}

func urls(list ...string) string {
	return fmt.Sprintf("opcuaDiscoveryMethod: {standard: {discoveryUrls: [%s]}}", strings.Join(list, ", "))
}

func noHosts(context.Context, string) ([]string, error) {
	return nil, &net.DNSError{Err: "no such host", IsNotFound: true}
}

func plc(url string) *ua.ApplicationDescription {
	return description("PLC", ua.ApplicationTypeServer, url)
}

// closedURL is a URL that refuses connections.
func closedURL(t *testing.T) string {
	s := serve(t)
	s.stop()
	return s.url
}

// silent is a server that takes connections and never answers.
func silent(t *testing.T) *fakeServer {
	s := serve(t)
	ended := make(chan struct{})
	t.Cleanup(func() { close(ended) })
	s.set(func() { s.behave = func(net.Conn) { <-ended } })
	return s
}

func TestReportsOnceAndOnEachChange(t *testing.T) {
	s := serve(t, plc("opc.tcp://192.0.2.1:4840/"))
	d := discover(t, &Handler{}, urls(s.url))
	d.wants("the server", "opc.tcp://192.0.2.1:4840/")
	await.That(t, "five rounds", func() (held bool) { s.set(func() { held = s.asked >= 5 }); return held })
	s.set(func() { s.applications = append(s.applications, plc("opc.tcp://192.0.2.2:4840/")) })
	d.wants("another server", "opc.tcp://192.0.2.1:4840/", "opc.tcp://192.0.2.2:4840/")
	s.set(func() { s.applications[1].ApplicationName.Text = "Lathe" })
	d.await("its new name", func() bool {
		return d.reports[len(d.reports)-1].Devices[1].Properties[NameProperty] == "Lathe"
	})
	s.set(func() { s.applications = nil })
	d.wants("none")
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.reports) != 4 || len(d.warned) > 0 {
		t.Errorf("%d reports, want one for each change: %v; warnings %q", len(d.reports), d.reports, d.warned)
	}
	for _, r := range d.reports {
		if !r.Shared {
			t.Error("a report is not shared")
		}
	}
}

func TestNoURLsIsAnEmptyReport(t *testing.T) {
	discover(t, &Handler{}, urls()).wants("no server")
}

func TestBadDetailsFailAtOnce(t *testing.T) {
	err := (&Handler{}).Discover(t.Context(), discovery.Request{Details: "opcuaDiscoveryMethod: 3"},
		func(r discovery.Result) { t.Errorf("reported %+v", r) })
	if !errors.Is(err, discovery.ErrInvalid) {
		t.Errorf("Discover() = %v, want an ErrInvalid", err)
	}
}

// A server under two URLs, or known to two discovery servers, is one device.
func TestAServerOfSeveralURLsIsOneDevice(t *testing.T) {
	a, b := serve(t, plc("opc.tcp://192.0.2.1:4840/"), plc("opc.tcp://192.0.2.3:4840/")), serve(t, plc("opc.tcp://192.0.2.2:4840/"), plc("opc.tcp://192.0.2.1:4840/"))
	b.set(func() { b.applications[1].ApplicationName.Text = "another name" })
	d := discover(t, &Handler{}, urls(b.url, a.url))
	d.wants("three servers", "opc.tcp://192.0.2.1:4840/", "opc.tcp://192.0.2.2:4840/", "opc.tcp://192.0.2.3:4840/")
	if name := d.reports[0].Devices[0].Properties[NameProperty]; name != "another name" {
		t.Errorf("the name is %q, want that of the first URL", name)
	}
}

// The first report has all servers: what it lacks would be gone, though it was there
// before this handler was started again.
func TestFirstReportWaitsForAllURLs(t *testing.T) {
	a, slow := serve(t, plc("opc.tcp://192.0.2.1:4840/")), serve(t, plc("opc.tcp://192.0.2.2:4840/"))
	refusals := 0
	slow.set(func() {
		slow.behave = func(net.Conn) { // hangs up on its first visitor
			slow.set(func() { refusals++; slow.behave = nil })
		}
	})
	d := discover(t, &Handler{}, urls(a.url, slow.url, closedURL(t)))
	d.await("a report", func() bool { return len(d.reports) > 0 })
	if len(d.reports[0].Devices) != 2 || refusals != 1 {
		t.Errorf("the first report has %v after %d refusals", d.reports[0].Devices, refusals)
	}
	d.warns("no OPC UA server at", "connection refused")
}

func TestASilentURLDelaysOthersNoLongerThanTheFirstReport(t *testing.T) {
	a := serve(t, plc("opc.tcp://192.0.2.1:4840/"))
	start, first := time.Now(), 500*time.Millisecond
	d := discover(t, &Handler{firstReport: first, askTimeout: first * 2 / 5}, urls(silent(t).url, a.url))
	d.wants("the server", "opc.tcp://192.0.2.1:4840/")
	if took := time.Since(start); took < first {
		t.Errorf("reported after %v, want %v", took, first)
	}
	a.set(func() { a.applications = nil })
	d.wants("its end")
}

func TestOneThatFailsDoesNotTouchTheOthers(t *testing.T) {
	a, b := serve(t, plc("opc.tcp://192.0.2.1:4840/")), serve(t, plc("opc.tcp://192.0.2.2:4840/"))
	d := discover(t, &Handler{}, urls(a.url, b.url))
	d.wants("both", "opc.tcp://192.0.2.1:4840/", "opc.tcp://192.0.2.2:4840/")
	b.stop()
	d.wants("the one left", "opc.tcp://192.0.2.1:4840/")
	d.warns("no OPC UA server at "+b.url, "connection refused")
	b.restart()
	d.wants("both again", "opc.tcp://192.0.2.1:4840/", "opc.tcp://192.0.2.2:4840/")
	if len(d.reports) != 3 {
		t.Errorf("%d reports: %v", len(d.reports), d.reports)
	}
}

// A server that answers nonsense, or nothing, for two rounds keeps its devices.
func TestDevicesOutliveTwoFailures(t *testing.T) {
	s := serve(t, plc("opc.tcp://192.0.2.1:4840/"))
	d := discover(t, &Handler{}, urls(s.url))
	d.wants("the server", "opc.tcp://192.0.2.1:4840/")
	failures := 0
	s.set(func() {
		s.behave = func(conn net.Conn) {
			_, _ = conn.Write([]byte("SSH-2.0-OpenSSH_9.9\r\n"))
			s.set(func() {
				if failures++; failures == maxFailures-1 {
					s.behave = nil
					s.applications = append(s.applications, plc("opc.tcp://192.0.2.2:4840/"))
				}
			})
		}
	})
	d.wants("both after the failures", "opc.tcp://192.0.2.1:4840/", "opc.tcp://192.0.2.2:4840/")
	if len(d.reports) != 2 {
		t.Errorf("%d reports: %v", len(d.reports), d.reports)
	}
	s.set(func() {
		s.behave = func(conn net.Conn) { _, _ = conn.Write([]byte("SSH-2.0-OpenSSH_9.9\r\n")) }
	})
	d.wants("none after more")
	d.warns("no OPC UA server at "+s.url, "not OPC UA")
}

func TestHostsThatAreNotKnown(t *testing.T) {
	oven, lds := serve(t), serve(t)
	oven.set(func() { oven.applications = []*ua.ApplicationDescription{plc("opc.tcp://oven:4840/UA")} })
	lds.set(func() {
		lds.applications = []*ua.ApplicationDescription{
			description("LDS", ua.ApplicationTypeDiscoveryServer, lds.url),
			plc("opc.tcp://mixer:4855/UA"),
		}
	})
	d := discover(t, &Handler{lookup: noHosts}, urls(oven.url, strings.Replace(lds.url, "127.0.0.1", "localhost", 1)))
	d.wants("both where they were asked", oven.url+"UA", "opc.tcp://localhost:4855/UA")
	d.warns("opc.tcp://mixer:4855/UA", "not known on this node")
	d.warns("opc.tcp://localhost:4855/UA is another server on each node")
	for _, device := range d.reports[0].Devices {
		if !strings.Contains(device.Properties[AdvertisedURLProperty], ":48") {
			t.Errorf("%v lacks %s", device, AdvertisedURLProperty)
		}
	}
}

// What a discovery server knows from its network is asked itself.
func TestServersOnNetwork(t *testing.T) {
	oven, other := serve(t), serve(t, description("Client", ua.ApplicationTypeClient))
	oven.set(func() { oven.applications = []*ua.ApplicationDescription{plc(oven.url)} })
	lds := serve(t)
	lds.set(func() {
		lds.applications = []*ua.ApplicationDescription{description("LDS", ua.ApplicationTypeDiscoveryServer, lds.url)}
		for i := range uint32(recordsAtOnce + 10) { // two pages
			lds.network = append(lds.network, &ua.ServerOnNetwork{RecordID: 2*i + 1, ServerName: "itself", DiscoveryURL: lds.url, ServerCapabilities: []string{"LDS"}})
		}
		lds.network = append(lds.network,
			&ua.ServerOnNetwork{RecordID: 1000, DiscoveryURL: oven.url, ServerCapabilities: []string{"DA"}},
			&ua.ServerOnNetwork{RecordID: 1001, DiscoveryURL: other.url},
			&ua.ServerOnNetwork{RecordID: 1002, DiscoveryURL: "https://192.0.2.1/"})
	})
	d := discover(t, &Handler{}, "opcuaDiscoveryMethod: {standard: {serversOnNetwork: true, discoveryUrls: ["+lds.url+", "+other.url+"]}}")
	d.wants("the server on the network", oven.url)
	if len(d.reports) != 1 {
		t.Errorf("%d reports, want one with all: %v", len(d.reports), d.reports)
	}
	d.warns("has no FindServersOnNetwork", other.url)
	lds.set(func() { lds.network = lds.network[:1] })
	d.wants("none")
	// Without the key, it is asked no more than Akri asks.
	discover(t, &Handler{}, urls(lds.url)).wants("none")
}

// A discovery server that names other servers each time, who do not answer, keeps nothing
// from being reported.
func TestServersOnNetworkThatChangeAllTheTime(t *testing.T) {
	s, nobody := serve(t, plc("opc.tcp://192.0.2.1:4840/")), silent(t)
	lds := serve(t)
	lds.set(func() {
		lds.name = func(n int) []*ua.ServerOnNetwork {
			return []*ua.ServerOnNetwork{{RecordID: 1, DiscoveryURL: fmt.Sprintf("%s%d", nobody.url, n)}}
		}
	})
	h := &Handler{askTimeout: time.Hour, firstReport: 200 * time.Millisecond}
	d := discover(t, h,
		"opcuaDiscoveryMethod: {standard: {serversOnNetwork: true, discoveryUrls: ["+lds.url+", "+s.url+"]}}")
	d.wants("the server that is listed", "opc.tcp://192.0.2.1:4840/")
}

// Servers that nobody listed lead to few devices each, and may answer with little.
func TestServersOnNetworkAreBounded(t *testing.T) {
	many, long := serve(t), serve(t)
	many.set(func() {
		for i := range 2 * maxServersOfLearned {
			many.applications = append(many.applications, plc(fmt.Sprintf("opc.tcp://192.0.2.%d/", i)))
		}
	})
	long.set(func() {
		long.applications = []*ua.ApplicationDescription{plc(long.url)}
		long.applications[0].ApplicationName.Text = strings.Repeat("x", maxAnswerOfLearned)
	})
	lds := serve(t)
	lds.set(func() {
		lds.network = []*ua.ServerOnNetwork{
			{RecordID: 1, DiscoveryURL: many.url}, {RecordID: 2, DiscoveryURL: long.url}}
	})
	d := discover(t, &Handler{},
		"opcuaDiscoveryMethod: {standard: {serversOnNetwork: true, discoveryUrls: ["+lds.url+"]}}")
	d.warns(many.url+" names more than 10 servers", "left out")
	d.warns("no OPC UA server at "+long.url, "an answer of more than 16384 bytes")
	d.await("ten devices", func() bool {
		return len(d.reports) > 0 && len(d.reports[len(d.reports)-1].Devices) == maxServersOfLearned
	})
}

// One URL does not lead to more devices than its share: a node has no room for any number.
func TestServersOfAURLAreBounded(t *testing.T) {
	s := serve(t)
	s.set(func() {
		for i := range maxServers + 10 {
			s.applications = append(s.applications, plc(fmt.Sprintf("opc.tcp://192.0.2.1:%d/", i+1)))
		}
	})
	d := discover(t, &Handler{}, urls(s.url))
	d.await("as many devices as there may be", func() bool {
		return len(d.reports) > 0 && len(d.reports[len(d.reports)-1].Devices) == maxServers
	})
	d.warns(s.url + " names more than 2500 servers")
}

func TestAsksOnlySomeAtATime(t *testing.T) {
	s := serve(t)
	hangUp := make(chan struct{})
	t.Cleanup(func() { close(hangUp) })
	var list []string
	for i := range 3 * asksAtOnce {
		list = append(list, fmt.Sprintf("%s%d", s.url, i))
	}
	s.set(func() { s.behave = func(net.Conn) { <-hangUp } })
	d := discover(t, &Handler{askTimeout: time.Minute}, urls(list...))
	asked := func(want int) {
		t.Helper()
		await.That(t, fmt.Sprintf("%d connections", want), func() (bool, string) {
			var n int
			s.set(func() { n = s.asked })
			if n > want {
				t.Fatalf("%d connections, want %d until one ends", n, want)
			}
			return n == want, fmt.Sprint(n)
		})
	}
	asked(asksAtOnce)
	for i := range 20 { // the others come as these end, one by one
		hangUp <- struct{}{}
		asked(asksAtOnce + i + 1)
	}
	d.end()
}
