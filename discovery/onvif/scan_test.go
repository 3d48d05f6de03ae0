package onvif

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/discovery/netif"
	"github.com/kubeslot/kubeslot/test/await"
	"github.com/kubeslot/kubeslot/test/onvifcamera/lan"
)

// A camera that was just plugged in does not wait for any number of made-up ones that did
// not answer: each may take 3 s.
func TestNewCamerasAreAskedFirst(t *testing.T) {
	requests := make(chan string, 10)
	server := onLoopback(t, func(_ http.ResponseWriter, r *http.Request) { requests <- r.URL.Path })
	s := &scan{client: newClient(anyAddress), changed: make(chan struct{}), asking: maxAsked} // so that none starts
	announce := func(path string) []question {
		url := strings.TrimSuffix(server.xaddr, "/d") + path
		_, _, ask := s.sightings.heard(pathOf(1), announcement{uuid: path, xaddrs: []string{url}}, time.Time{})
		return ask
	}
	for i := range 3 {
		for _, q := range announce(fmt.Sprintf("/made-up-%d", i)) {
			s.sightings.answered(q.uuid, q.target.xaddr, errors.New("refused"), 0)
		}
	}
	s.update(t.Context(), func() (bool, []question) { return false, s.sightings.endRound() })
	s.update(t.Context(), func() (bool, []question) { return false, announce("/new") })
	s.ask(t.Context())
	close(requests)
	var asked []string
	for path := range requests {
		asked = append(asked, path)
	}
	if want := []string{"/new", "/made-up-0", "/made-up-1", "/made-up-2"}; !slices.Equal(asked, want) {
		t.Errorf("asked %q, want %q", asked, want)
	}
}

func pathOf(last byte) path { return path{index: 1, source: netip.AddrFrom4([4]byte{10, 0, 0, last})} }

// flooded has a message at any time.
type flooded struct {
	net.PacketConn
	messages int
}

func (f *flooded) ReadFrom([]byte) (int, net.Addr, error) {
	f.messages++
	return 0, net.UDPAddrFromAddrPort(netip.MustParseAddrPort("10.0.0.1:3702")), nil
}

// Who sends without end does not keep the node busy.
func TestAFloodIsReadAtABoundedRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		conn, s := &flooded{}, &scan{}
		s.running.Go(func() { s.read(ctx, &link{}, conn) })
		<-time.After(10 * time.Second) // of the bubble
		cancel()
		s.running.Wait()
		if most := messagesAtOnce + 10*messagesPerSecond; conn.messages > most+2 || conn.messages < most-2 {
			t.Errorf("%d messages are read in 10 s, want %d", conn.messages, most)
		}
	})
}

// Samba's wsdd on the same node is asked directly, at the node's address: that reaches it.
func TestMessagesToTheNodeAloneAreLeftToOthers(t *testing.T) {
	lan.New(t)
	other, err := net.ListenMulticastUDP("udp4", nil, &net.UDPAddr{IP: groupIPv4.AsSlice(), Port: discoveryPort})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	interfaces, err := netif.List(nil)
	if err != nil {
		t.Fatal(err)
	}
	e := endpoints(interfaces)[0]
	l, err := openLink(e)
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	sender, err := net.Dial("udp4", netip.AddrPortFrom(e.address, discoveryPort).String())
	if err != nil {
		t.Fatal(err)
	}
	defer sender.Close()
	if _, err := sender.Write([]byte("to the node")); err != nil {
		t.Fatal(err)
	}
	_ = other.SetReadDeadline(time.Now().Add(10 * time.Second))
	if n, _, err := other.ReadFrom(make([]byte, 100)); err != nil || n == 0 {
		t.Errorf("the other program gets %d bytes, %v", n, err)
	}
}

// What keeps all cameras from being found is a warning.
func TestWarnings(t *testing.T) {
	lan.New(t)
	for name, tc := range map[string]struct {
		interfaces []string
		full       bool
		want       string
	}{
		"no interface":     {[]string{"nosuch*"}, false, netif.None},
		"too many cameras": {nil, true, "others are ignored"},
		"neither":          {nil, false, ""},
	} {
		h := &Handler{Interfaces: tc.interfaces, Interval: time.Hour}
		r := discover(t, h, discovery.Request{Details: "discoveryTimeoutSeconds: 1"})
		await.That(t, "the scan", func() bool {
			h.mu.Lock()
			defer h.mu.Unlock()
			return h.scan != nil
		})
		h.scan.update(t.Context(), func() (bool, []question) {
			h.scan.sightings.full = tc.full
			return true, nil
		})
		r.want(time.Minute, "nothing")
		await.That(t, "the warning", func() bool { return tc.want == "" || len(r.warnings) > 0 })
		r.stop()
		close(r.warnings)
		var got []string
		for warning := range r.warnings {
			got = append(got, warning)
		}
		if text := strings.Join(got, "; "); !strings.Contains(text, tc.want) || tc.want == "" && text != "" {
			t.Errorf("%s: warnings %q, want %q", name, got, tc.want)
		}
	}
}
