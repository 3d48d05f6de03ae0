package mdns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/test/await"
)

// discoveries are what one Discover reports.
type discoveries struct {
	t       *testing.T
	reports chan discovery.Result
	done    chan error
	stop    context.CancelFunc
	last    discovery.Result
	mu      sync.Mutex
	warned  []string
}

func discover(t *testing.T, h *Handler, details string) *discoveries {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	d := &discoveries{t: t, reports: make(chan discovery.Result, 10_000), done: make(chan error, 1), stop: cancel}
	request := discovery.Request{Details: details, Warn: func(message string) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.warned = append(d.warned, message)
	}}
	go func() {
		d.done <- h.Discover(ctx, request, func(r discovery.Result) { d.reports <- r })
		close(d.done)
	}()
	t.Cleanup(func() {
		cancel()
		<-d.done
	})
	return d
}

// waitFor waits for a report that is as wanted and returns when it came.
func (d *discoveries) waitFor(what string, want func(map[string]discovery.Device) bool) time.Time {
	d.t.Helper()
	deadline := time.After(2 * time.Minute)
	for {
		select {
		case d.last = <-d.reports:
			if !d.last.Shared {
				d.t.Fatalf("reported local devices: %+v", d.last)
			}
			devices := map[string]discovery.Device{}
			for _, device := range d.last.Devices {
				devices[device.ID] = device
			}
			if want(devices) {
				return time.Now()
			}
		case err := <-d.done:
			d.t.Fatalf("Discover ended with %v while waiting for %s", err, what)
		case <-deadline:
			d.t.Fatalf("no report of %s within two minutes; the last was %+v", what, d.last)
		}
	}
}

// waitForIDs waits for a report of exactly these devices.
func (d *discoveries) waitForIDs(ids ...string) time.Time {
	d.t.Helper()
	return d.waitFor(fmt.Sprintf("%d devices %q", len(ids), ids), func(devices map[string]discovery.Device) bool {
		for _, id := range ids {
			if _, ok := devices[id]; !ok {
				return false
			}
		}
		return len(devices) == len(ids)
	})
}

// lamp is a responder's announcement, with miekg/dns's idea of the format.
func lamp(t *testing.T, ttl uint32, addresses ...string) []byte {
	m := &dns.Msg{MsgHdr: dns.MsgHdr{Response: true, Authoritative: true}}
	const instance, host = `Lamp._http._tcp.local.`, "lamp.local."
	m.Answer = []dns.RR{
		&dns.PTR{Hdr: header("_http._tcp.local.", dns.TypePTR, dns.ClassINET, ttl), Ptr: instance},
		&dns.SRV{Hdr: header(instance, dns.TypeSRV, dns.ClassINET|cacheFlush, ttl), Port: 8080, Target: host},
		&dns.TXT{Hdr: header(instance, dns.TypeTXT, dns.ClassINET|cacheFlush, ttl), Txt: []string{"model=X-1"}},
	}
	for _, a := range addresses {
		if ip := net.ParseIP(a); ip.To4() != nil {
			m.Answer = append(m.Answer, &dns.A{Hdr: header(host, dns.TypeA, dns.ClassINET|cacheFlush, ttl), A: ip})
		} else {
			m.Answer = append(m.Answer, &dns.AAAA{Hdr: header(host, dns.TypeAAAA, dns.ClassINET|cacheFlush, ttl), AAAA: ip})
		}
	}
	return pack(t, m)
}

func send(t *testing.T, s *socket, packet []byte) {
	t.Helper()
	if err := s.send(packet); err != nil {
		t.Fatalf("send: %v", err)
	}
}

// queries returns the next query that arrives at a socket, and where it is from.
func nextQuery(t *testing.T, s *socket) (*dns.Msg, net.Addr) {
	t.Helper()
	buffer := make([]byte, maxPacketBytes)
	if err := s.conn.SetReadDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	n, from, err := s.conn.ReadFrom(buffer)
	if err != nil {
		t.Fatalf("wait for a query: %v", err)
	}
	m := &dns.Msg{}
	if err := m.Unpack(buffer[:n]); err != nil {
		t.Fatalf("a query that miekg/dns cannot read: %v", err)
	}
	return m, from
}

// goneWithin is how long a goodbye may take right after an announcement: of several, the fastest, since
// the machine may be busy.
const goneWithin = 2 * time.Second

func TestDevicesComeAndGo(t *testing.T) {
	if !inNewNamespace(t) {
		return
	}
	peer := newNeighbour(t)
	peer.cable("eth0", []string{"10.7.0.1/24", "fd07::1/64"}, []string{"10.7.0.2/24", "fd07::2/64"})
	h := &Handler{}
	d := discover(t, h, "services: [_http._tcp]")
	d.waitForIDs() // also when there is none

	fastest := time.Hour
	for try := 0; try < 2 || fastest > goneWithin && try < 10; try++ {
		v6 := try%2 == 1
		responder := peer.open("eth0", v6)
		send(t, responder, lamp(t, 120, "10.7.0.2", "fd07::2"))
		d.waitForIDs("Lamp._http._tcp")
		want := discovery.Device{ID: "Lamp._http._tcp", Properties: map[string]string{
			"MDNS_NAME": "Lamp", "MDNS_TYPE": "_http._tcp", "MDNS_HOST": "lamp.local", "MDNS_PORT": "8080",
			"MDNS_ADDRESS": "10.7.0.2", "MDNS_ADDRESSES": "10.7.0.2,fd07::2", "MDNS_TXT_MODEL": "X-1",
		}}
		if diff := cmp.Diff([]discovery.Device{want}, d.last.Devices); diff != "" {
			t.Errorf("v6 %t (-want +got):\n%s", v6, diff)
		}
		said := time.Now()
		send(t, responder, lamp(t, 0, "10.7.0.2", "fd07::2"))
		fastest = min(fastest, d.waitForIDs().Sub(said))
	}
	if fastest > goneWithin {
		t.Errorf("the device was gone %v after its goodbye, want at most %v", fastest, goneWithin)
	}
}

func TestAsksOnEachInterfaceAndFamily(t *testing.T) {
	if !inNewNamespace(t) {
		return
	}
	peer := newNeighbour(t)
	peer.cable("eth0", []string{"10.7.0.1/24"}, []string{"10.7.0.2/24"})
	asked := func(device string, v6 bool) {
		t.Helper()
		m, from := nextQuery(t, peer.open(device, v6))
		if len(m.Question) != 1 || m.Question[0].Name != "_http._tcp.local." || m.Question[0].Qtype != dns.TypePTR || m.Question[0].Qclass != dns.ClassINET {
			t.Errorf("%s: question %+v", device, m.Question)
		}
		if got := from.(*net.UDPAddr); got.Port != port || (got.IP.To4() == nil) != v6 {
			t.Errorf("%s: asked from %v", device, from)
		}
	}
	discover(t, &Handler{Interfaces: []string{"*"}}, "services: [_http._tcp]")
	asked("eth0", false)
	asked("eth0", true)

	// An interface that comes later is asked as well, and what it has to say counts.
	d := discover(t, &Handler{Interfaces: []string{"!eth2"}}, "services: [_http._tcp]") // beside the other, on the same port
	d.waitForIDs()
	peer.cable("eth1", []string{"10.8.0.1/24"}, []string{"10.8.0.2/24"})
	asked("eth1", false)

	// So is a family that comes later, though the service is asked for ever more rarely.
	peer.cable("eth2", nil, []string{"10.9.0.2/24"}) // with link-local IPv6 alone
	for range 4 {
		asked("eth2", true) // the fifth comes 8 s after the fourth
	}
	late := peer.open("eth2", false)
	came := time.Now()
	if err := configure("eth2", []string{"10.9.0.1/24"}); err != nil {
		t.Fatal(err)
	}
	nextQuery(t, late)
	if took := time.Since(came); took > 7*time.Second {
		t.Errorf("asked %v after the first IPv4 address came", took)
	}

	send(t, peer.open("eth1", false), lamp(t, 120, "10.8.0.2"))
	d.waitForIDs("Lamp._http._tcp")
}

// Devices are gone with their interface, though not at once.
func TestAnInterfaceThatGoes(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for linkGrace, whose rule is in testdata/scenarios/interfaces.txt: make test-all")
	}
	if !inNewNamespace(t) {
		return
	}
	peer := newNeighbour(t)
	peer.cable("eth0", []string{"10.7.0.1/24"}, []string{"10.7.0.2/24"})
	peer.cable("eth1", []string{"10.8.0.1/24"}, []string{"10.8.0.2/24"})
	d := discover(t, &Handler{}, "services: [_http._tcp]")
	d.waitForIDs()
	send(t, peer.open("eth1", false), lamp(t, 120, "10.8.0.2"))
	d.waitForIDs("Lamp._http._tcp")
	link, err := netlink.LinkByName("eth1")
	if err == nil {
		err = netlink.LinkDel(link)
	}
	if err != nil {
		t.Fatal(err)
	}
	lost := time.Now()
	if took := d.waitForIDs().Sub(lost); took < linkGrace-time.Second || took > linkGrace+5*time.Second {
		t.Errorf("the device was gone %v after its interface, want about %v", took, linkGrace)
	}
}

func TestEndsAtOnceAndLeavesNothing(t *testing.T) {
	if !inNewNamespace(t) {
		return
	}
	peer := newNeighbour(t)
	peer.cable("eth0", []string{"10.7.0.1/24"}, []string{"10.7.0.2/24"})
	open := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	h := &Handler{}
	var fds, goroutines int
	for round := range 3 {
		first, second := discover(t, h, "services: [_http._tcp]"), discover(t, h, "services: [_ipp._tcp]")
		first.waitForIDs()
		second.waitForIDs()
		for _, d := range []*discoveries{first, second} {
			d.stop()
			if err := await.Next(t, "the end of Discover", d.done); !errors.Is(err, context.Canceled) {
				t.Errorf("Discover() = %v, want %v", err, context.Canceled)
			}
		}
		if h.browser != nil {
			t.Error("the browser is still there")
		}
		if round == 0 {
			fds, goroutines = open(), runtime.NumGoroutine()
		}
	}
	what := fmt.Sprintf("%d files and %d goroutines, as after the first round", fds, goroutines)
	await.That(t, what, func() (bool, string) {
		f, g := open(), runtime.NumGoroutine()
		return f <= fds && g <= goroutines, fmt.Sprintf("%d and %d", f, g)
	})
}

// Somebody who does not share the port is a problem that is told, with its way out.
func TestAPortThatIsTaken(t *testing.T) {
	if !inNewNamespace(t) {
		return
	}
	peer := newNeighbour(t)
	peer.cable("eth0", []string{"10.7.0.1/24"}, []string{"10.7.0.2/24"})
	taken := map[string]net.PacketConn{}
	for _, network := range []string{"udp4", "udp6"} {
		conn, err := net.ListenPacket(network, fmt.Sprintf(":%d", port))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		taken[network] = conn
	}
	failed := discover(t, &Handler{}, "services: [_http._tcp]")
	err := <-failed.done
	if !errors.Is(err, unix.EADDRINUSE) || !strings.Contains(err.Error(), "network interface eth0") || !strings.Contains(err.Error(), "5353") {
		t.Errorf("Discover() = %v, want one that names eth0, port 5353 and %v", err, unix.EADDRINUSE)
	}

	// One family is enough, with a warning.
	_ = taken["udp4"].Close()
	d := discover(t, &Handler{}, "services: [_http._tcp]")
	d.waitForIDs()
	d.mu.Lock()
	defer d.mu.Unlock()
	if warned := slices.Compact(d.warned); len(warned) != 1 || !strings.Contains(warned[0], "IPv6") {
		t.Errorf("warnings %q, want one about IPv6", warned)
	}
}

// A flood of packets, random and well-formed, neither stops the handler nor hides a
// device that announces itself afterwards.
func TestFlood(t *testing.T) {
	if !inNewNamespace(t) {
		return
	}
	peer := newNeighbour(t)
	peer.cable("eth0", []string{"10.7.0.1/24"}, []string{"10.7.0.2/24"})
	d := discover(t, &Handler{}, "services: [_http._tcp]")
	d.waitForIDs()
	responder := peer.open("eth0", false)
	whole := lamp(t, 120, "10.7.0.2")
	for i := range 20_000 {
		packet := append([]byte(nil), whole...)
		switch i % 4 {
		case 0:
			packet[i%len(packet)] ^= byte(i)
		case 1:
			packet = packet[:i%len(packet)]
		case 2:
			packet = append(packet, make([]byte, 8000)...)
		case 3: // instances that do not exist
			m := &dns.Msg{MsgHdr: dns.MsgHdr{Response: true}}
			m.Answer = []dns.RR{&dns.PTR{Hdr: header("_http._tcp.local.", dns.TypePTR, dns.ClassINET, 4500), Ptr: fmt.Sprintf("x%d._http._tcp.local.", i)}}
			packet = pack(t, m)
		}
		_ = responder.send(packet)
	}
	deadline := time.After(2 * time.Minute)
	for {
		send(t, responder, lamp(t, 120, "10.7.0.77"))
		select {
		case r := <-d.reports:
			for _, device := range r.Devices {
				if device.ID == "Lamp._http._tcp" && device.Properties[AddressProperty] == "10.7.0.77" {
					return
				}
			}
		case <-time.After(200 * time.Millisecond):
		case <-deadline:
			t.Fatal("the device was not found within two minutes after a flood")
		}
	}
}
