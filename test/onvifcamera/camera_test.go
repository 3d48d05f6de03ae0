package onvifcamera

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/kubeslot/kubeslot/test/onvifcamera/lan"
)

func TestMain(m *testing.M) { lan.Main(m) }

const testUUID = "3fa1fe68-b915-4053-a3e1-a8294833fe3c"

// start starts a camera on a host of its own.
func start(t *testing.T, l *lan.LAN, config Config) (*Camera, *lan.Host) {
	t.Helper()
	config.UUID, config.Log = testUUID, t.Logf
	if config.MaxDelay == 0 {
		config.MaxDelay = 100 * time.Millisecond
	}
	host := l.Host()
	var camera *Camera
	err := host.Do(func() (err error) {
		camera, err = Start(config)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(camera.Kill)
	return camera, host
}

// client is a socket of this process, on the same network.
type client struct {
	t    *testing.T
	conn net.PacketConn
}

// ask sends a message and returns the answer, or "" when there is none. One that is not expected has a second, which
// is ten times what a camera takes at most.
func (c client) ask(to netip.AddrPort, message string, expected bool) string {
	c.t.Helper()
	if _, err := c.conn.WriteTo([]byte(message), net.UDPAddrFromAddrPort(to)); err != nil {
		c.t.Fatal(err)
	}
	buffer := make([]byte, maxDatagram)
	within := time.Second
	if expected {
		within = time.Minute
	}
	if err := c.conn.SetReadDeadline(time.Now().Add(within)); err != nil {
		c.t.Fatal(err)
	}
	n, _, err := c.conn.ReadFrom(buffer)
	if err != nil {
		return ""
	}
	return string(buffer[:n])
}

func newClient(t *testing.T, network string) client {
	t.Helper()
	conn, err := net.ListenPacket(network, ":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return client{t, conn}
}

func probe(id, body string) string {
	return fmt.Sprintf(`<s:Envelope xmlns:s="%s" xmlns:a="%s" xmlns:d="%s"><s:Header><a:Action>%s/Probe</a:Action>`+
		`<a:MessageID>urn:uuid:%s</a:MessageID><a:To>%s</a:To></s:Header><s:Body>%s</s:Body></s:Envelope>`,
		nsSOAP, nsAddressing, nsDiscovery, nsDiscovery, id, toEverybody, body)
}

func TestProbes(t *testing.T) {
	l := lan.New(t)
	camera, host := start(t, l, Config{Scopes: []string{"onvif://www.onvif.org/location/hall/door"}})
	four := netip.AddrPortFrom(groupIPv4, discoveryPort)
	six := netip.AddrPortFrom(groupIPv6.WithZone("eth0"), discoveryPort)
	types := func(declared, names string) string {
		return `<d:Probe><d:Types ` + declared + `>` + names + `</d:Types></d:Probe>`
	}
	scopes := func(matchBy, names string) string {
		return `<d:Probe><d:Scopes ` + matchBy + `>` + names + `</d:Scopes></d:Probe>`
	}
	exact := `MatchBy="` + nsDiscovery + `/strcmp0"`
	for name, tc := range map[string]struct {
		to      netip.AddrPort
		body    string
		answers bool
	}{
		"anything":                      {body: `<d:Probe/>`, answers: true},
		"over IPv6":                     {to: six, body: `<d:Probe/>`, answers: true},
		"to the camera alone":           {to: netip.AddrPortFrom(host.IPv4, discoveryPort), body: `<d:Probe/>`, answers: true},
		"transmitters":                  {body: types(`xmlns:x="`+nsNetwork+`"`, "x:NetworkVideoTransmitter"), answers: true},
		"both types":                    {body: types(`xmlns:x="`+nsNetwork+`" xmlns:y="`+nsDevice+`"`, " x:NetworkVideoTransmitter\n y:Device "), answers: true},
		"a default namespace":           {body: `<d:Probe xmlns="` + nsDevice + `"><d:Types>Device</d:Types></d:Probe>`, answers: true},
		"Akri's undeclared prefix":      {body: types("", "netwsdl:NetworkVideoTransmitter")},
		"the type of another namespace": {body: types(`xmlns:x="http://schemas.xmlsoap.org/ws/2006/02/devprof"`, "x:Device")},
		"one type of two":               {body: types(`xmlns:x="`+nsNetwork+`"`, "x:NetworkVideoTransmitter x:NetworkVideoDisplay")},
		"a scope":                       {body: scopes("", "onvif://www.onvif.org/location/hall/door"), answers: true},
		"a scope's beginning":           {body: scopes("", "onvif://WWW.onvif.org/location/hall"), answers: true},
		"a part of a segment":           {body: scopes("", "onvif://www.onvif.org/location/ha")},
		"a scope to the letter":         {body: scopes(exact, "onvif://www.onvif.org/location/hall/door"), answers: true},
		"a beginning to the letter":     {body: scopes(exact, "onvif://www.onvif.org/location/hall")},
		"one scope of two":              {body: scopes("", "onvif://www.onvif.org/location/hall onvif://www.onvif.org/location/attic")},
		"an unknown comparison":         {body: scopes(`MatchBy="urn:x"`, "onvif://www.onvif.org/location/hall/door")},
	} {
		t.Run(name, func(t *testing.T) {
			if !tc.to.IsValid() {
				tc.to = four
			}
			network := "udp4"
			if tc.to.Addr().Is6() {
				network = "udp6"
			}
			id := newUUID()
			answer := newClient(t, network).ask(tc.to, probe(id, tc.body), tc.answers)
			if (answer != "") != tc.answers {
				t.Fatalf("answer is %q, want one: %v", answer, tc.answers)
			}
			if answer == "" {
				return
			}
			for _, want := range []string{"<wsa:RelatesTo>urn:uuid:" + id + "<", "<wsa:Address>urn:uuid:" + testUUID + "<", nsDiscovery + "/ProbeMatches<"} {
				if !strings.Contains(answer, want) {
					t.Errorf("answer has no %s: %s", want, answer)
				}
			}
			url := fmt.Sprintf("http://%s:%d%s", host.IPv4, camera.Port(), devicePath)
			if network == "udp6" {
				url = fmt.Sprintf("http://[%s]:%d%s", host.IPv6, camera.Port(), devicePath)
			}
			if !strings.Contains(answer, url) {
				t.Errorf("answer has no %s: %s", url, answer)
			}
		})
	}
	t.Run("a repeated message is answered once", func(t *testing.T) {
		c := newClient(t, "udp4")
		message := probe(newUUID(), `<d:Probe/>`)
		if c.ask(four, message, true) == "" || c.ask(four, message, false) != "" {
			t.Error("want an answer to the first of two equal messages alone")
		}
	})
	t.Run("resolve", func(t *testing.T) {
		message := func(id string) string {
			return strings.Replace(probe(newUUID(), `<d:Resolve><a:EndpointReference><a:Address>urn:uuid:`+id+`</a:Address></a:EndpointReference></d:Resolve>`),
				"/Probe<", "/Resolve<", 1)
		}
		answer := newClient(t, "udp4").ask(four, message(testUUID), true)
		if !strings.Contains(answer, "<wsd:ResolveMatch>") {
			t.Errorf("answer is %q, want a ResolveMatch", answer)
		}
		if answer := newClient(t, "udp4").ask(four, message("another"), false); answer != "" {
			t.Errorf("another camera's Resolve is answered with %q", answer)
		}
	})
	t.Run("deaf", func(t *testing.T) {
		camera.SetDeaf(true)
		if answer := newClient(t, "udp4").ask(four, probe(newUUID(), `<d:Probe/>`), false); answer != "" {
			t.Errorf("a deaf camera answers %q", answer)
		}
		camera.SetDeaf(false)
		if newClient(t, "udp4").ask(four, probe(newUUID(), `<d:Probe/>`), true) == "" {
			t.Error("a camera that hears again does not answer")
		}
	})
}

// Somebody who joined the groups hears Hello and Bye, on IPv4 and IPv6.
func TestHelloAndBye(t *testing.T) {
	l := lan.New(t)
	listeners, err := openLinks("eth0") // of this process
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range listeners {
		t.Cleanup(l.close)
	}
	hear := func(l *link) string {
		t.Helper()
		buffer := make([]byte, maxDatagram)
		if err := l.group.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		n, _, err := l.group.ReadFrom(buffer)
		if err != nil {
			t.Fatalf("%s: %v", l.group.LocalAddr(), err)
		}
		decoder := xml.NewDecoder(bytes.NewReader(buffer[:n]))
		for {
			if _, err := decoder.Token(); err != nil {
				if err.Error() != "EOF" {
					t.Errorf("%s is not well-formed: %v", buffer[:n], err)
				}
				return string(buffer[:n])
			}
		}
	}
	camera, _ := start(t, l, Config{Name: "Hall & door"})
	for _, l := range listeners {
		if m := hear(l); !strings.Contains(m, "/discovery/Hello</wsa:Action>") || !strings.Contains(m, "name/Hall%20&amp;%20door") {
			t.Errorf("%s: heard %s, want a Hello", l.group.LocalAddr(), m)
		}
	}
	camera.Stop()
	for _, l := range listeners {
		if m := hear(l); !strings.Contains(m, "/discovery/Bye</wsa:Action>") || !strings.Contains(m, testUUID) {
			t.Errorf("%s: heard %s, want a Bye", l.group.LocalAddr(), m)
		}
	}
	if len(listeners) != 2 {
		t.Errorf("%d listeners, want IPv4 and IPv6", len(listeners))
	}
}
