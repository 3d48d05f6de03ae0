package opcua

import (
	"cmp"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/gopcua/opcua/ua"

	"github.com/kubeslot/kubeslot/test/await"
	"github.com/kubeslot/kubeslot/test/onvifcamera/lan"
)

// A server behind NAT names a URL at which nobody, or somebody else, answers: it stays
// where it was asked. One that answers at its own URL is there.
func TestServersThatNameAnotherAddress(t *testing.T) {
	t.Parallel()
	another := serve(t, description("Lathe", ua.ApplicationTypeServer))
	busy := serve(t)
	busy.set(func() {
		busy.behave = func(conn net.Conn) {
			refusal := append([]byte("ERRF\x10\x00\x00\x00"),
				words(uint32(ua.StatusBadTCPNotEnoughResources), 0xffffffff)...)
			_, _ = conn.Write(refusal)
			_ = conn.(*net.TCPConn).CloseWrite()
			_, _ = io.Copy(io.Discard, conn)
		}
	})
	for name, tc := range map[string]struct {
		named string
		stays bool
		why   string
	}{
		"nobody there":          {closedURL(t), true, "connection refused"},
		"nothing said there":    {silent(t).url, true, "timeout"},
		"another server there":  {another.url, true, `another server answers, which is not "urn:PLC"`},
		"itself there":          {serve(t, plc("opc.tcp://elsewhere/")).url, false, ""},
		"busy there":            {busy.url, false, ""},
		"where it was asked":    {"", false, ""},
		"a name that is nobody": {"opc.tcp://unknown:4840/", true, ""}, // and no warning: as in Akri
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t)
			want := tc.named
			if tc.named == "" {
				tc.named, want = s.url, s.url
			}
			if tc.stays {
				want = s.url
			}
			s.set(func() { s.applications = []*ua.ApplicationDescription{plc(tc.named)} })
			d := discover(t, &Handler{answers: answersAs, lookup: noHosts}, urls(s.url))
			d.wants("the server", want)
			if tc.why != "" {
				d.warns(`"PLC" at `+s.url, "calls its URL "+tc.named, tc.why)
			} else if strings.Contains(strings.Join(d.warned, " "), "calls its URL") {
				t.Errorf("warned %q", d.warned)
			}
			if tc.stays && d.reports[0].Devices[0].Properties[AdvertisedURLProperty] != tc.named {
				t.Errorf("%v lacks %s", d.reports[0].Devices[0], AdvertisedURLProperty)
			}
		})
	}
}

// A device does not change its ID because the other URL begins or ceases to answer: it is
// asked again when the server names another, or was gone.
func TestTheNamedAddressIsAskedOnce(t *testing.T) {
	other, s := serve(t, plc("opc.tcp://elsewhere/")), serve(t)
	other.stop()
	s.set(func() { s.applications = []*ua.ApplicationDescription{plc(other.url)} })
	d := discover(t, &Handler{answers: answersAs}, urls(s.url))
	d.wants("where it was asked", s.url)
	other.restart()
	rounds := func(n int) {
		t.Helper()
		var until int
		s.set(func() { until = s.asked + n })
		await.That(t, "more rounds", func() (held bool) { s.set(func() { held = s.asked >= until }); return held })
	}
	rounds(3)
	d.wants("there still", s.url)
	s.stop()
	d.wants("none")
	s.restart()
	d.wants("at its own URL", other.url)
	other.stop()
	rounds(3)
	d.wants("there still", other.url)
	elsewhere := serve(t, plc("opc.tcp://elsewhere/"))
	s.set(func() { s.applications[0].DiscoveryURLs = []string{elsewhere.url} })
	d.wants("at another URL of its own", elsewhere.url)
	if n := len(d.reports); n != 4 || !strings.Contains(d.warned[0], "calls its URL") {
		t.Errorf("%d reports, want 4; warnings %q", n, d.warned)
	}
}

// Whoever answers as a server, or is on the network, chooses where kubecri connects to: to
// nothing on the node, unless it is there itself, and to no metadata service.
func TestNoServerNamesAnAddressOfThisNode(t *testing.T) {
	l := lan.New(t)
	own, remote := serve(t), &fakeServer{t: t}
	own.listen("192.168.77.1:4840")
	own.applications = []*ua.ApplicationDescription{plc(own.url)}
	host := l.Host()
	if err := host.Do(func() error { remote.listen(host.IPv4.String() + ":4840"); return nil }); err != nil {
		t.Fatal(err)
	}
	remote.set(func() {
		remote.applications = own.applications
		remote.network = []*ua.ServerOnNetwork{{RecordID: 1, DiscoveryURL: own.url + "learned"}}
	})
	d := discover(t, &Handler{answers: answersAs},
		"opcuaDiscoveryMethod: {standard: {serversOnNetwork: true, discoveryUrls: ["+remote.url+"]}}")
	d.wants("where it was asked", remote.url)
	d.warns("calls its URL "+own.url, "192.168.77.1 is an address of this node, and not followed")
	d.warns("no OPC UA server at "+own.url+"learned", "192.168.77.1 is an address of this node")
	own.set(func() {
		if own.asked > 0 {
			t.Errorf("this node was asked %d times", own.asked)
		}
	})
	at, err := parseTarget("opc.tcp://169.254.169.254:80/")
	at.named, at.near = true, true
	if err = cmp.Or(err, answersAs(t.Context(), at, "")); err == nil || !strings.Contains(err.Error(),
		"no address of a device") {
		t.Errorf("a metadata service: %v", err)
	}
}
