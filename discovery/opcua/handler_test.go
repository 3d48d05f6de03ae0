package opcua

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/test/await"
)

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
