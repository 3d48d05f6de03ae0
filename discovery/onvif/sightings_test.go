package onvif

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// testdata/sightings says what the commands mean.
func TestSightings(t *testing.T) {
	var s sightings
	datadriven.RunTest(t, "testdata/sightings", func(t *testing.T, d *datadriven.TestData) string {
		var b strings.Builder
		asked := func(questions []question) {
			for _, q := range questions {
				fmt.Fprintf(&b, "ask %s at %s, told by %s\n", q.uuid, q.target.xaddr, q.target.source)
			}
		}
		flag := func(text string, set bool) {
			if set {
				b.WriteString(text + "\n")
			}
		}
		arg := func(key string) (value string) {
			d.MaybeScanArgs(t, key, &value)
			return value
		}
		switch d.Cmd {
		case "reset":
			s = sightings{}
		case "probe-match", "resolve-match", "hello":
			a := announcement{uuid: arg("uuid"), version: arg("version"), scopes: strings.FieldsFunc(arg("scopes"), isComma)}
			a.kind = map[string]kind{"probe-match": probeMatch, "resolve-match": resolveMatch, "hello": hello}[d.Cmd]
			a.xaddrs = strings.FieldsFunc(arg("xaddrs"), isComma)
			a.brief = len(a.xaddrs) == 0
			on := path{index: 1, source: netip.MustParseAddr(arg("from"))}
			if i := arg("interface"); i != "" {
				on.index = int(i[0] - '0')
			}
			changed, resolve, ask := s.heard(on, a, time.Time{})
			flag("changed", changed)
			flag("resolve", resolve)
			asked(ask)
		case "there", "not-there":
			var err error
			if d.Cmd == "not-there" {
				err = errors.New("refused")
			}
			changed, again := s.answered(arg("uuid"), arg("xaddr"), err, 0)
			flag("changed", changed)
			flag(fmt.Sprintf("ask again after %s", again), again > 0)
		case "rounds":
			var n int
			d.ScanArgs(t, "n", &n)
			for range n {
				asked(s.endRound())
			}
		case "bye":
			asked(s.bye(arg("uuid")))
		case "ask-leaving":
			asked(s.askLeaving(arg("uuid")))
		case "present":
			cameras, pending := s.present()
			for _, c := range cameras {
				fmt.Fprintf(&b, "%s version %q scopes %q\n", c.uuid, c.version, c.scopes)
				for _, v := range c.services {
					fmt.Fprintf(&b, "  %s akri=%v\n", v.xaddr, v.akri())
				}
			}
			for _, c := range s.unanswered() {
				fmt.Fprintf(&b, "%s does not answer, scopes %q, announced by %s: %v\n", c.uuid, c.scopes,
					c.source, c.err)
			}
			flag("others are being asked for the first time", pending)
			flag("(no sightings at all)", len(s.cameras) == 0)
		default:
			t.Fatalf("command %q", d.Cmd)
		}
		return b.String()
	})
}

func isComma(r rune) bool { return r == ',' }

// A flood of made-up cameras, and of sources of one camera, has bounds.
func TestSightingsAreBounded(t *testing.T) {
	var s sightings
	from := func(i int) path {
		return path{index: 1, source: netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})}
	}
	for i := range 10_000 {
		s.heard(from(i), announcement{uuid: fmt.Sprint(i), xaddrs: []string{fmt.Sprintf("http://10.0.0.1/%d", i)}}, time.Time{})
		s.heard(from(i), announcement{uuid: "0", xaddrs: []string{fmt.Sprintf("http://10.0.0.2/%d", i)}}, time.Time{})
	}
	if n := len(s.cameras); n != maxCameras {
		t.Errorf("%d cameras, want %d", n, maxCameras)
	}
	if n := len(s.cameras["0"].answers); n != maxPaths {
		t.Errorf("%d paths of a camera, want %d", n, maxPaths)
	}
	for range maxSilent {
		for _, q := range s.endRound() {
			s.answered(q.uuid, q.target.xaddr, io.EOF, 0)
		}
	}
	for uuid, c := range s.cameras { // those that are still being asked for the first time
		for xaddr := range c.services {
			s.answered(uuid, xaddr, io.EOF, 0)
		}
	}
	for _, q := range s.endRound() {
		s.answered(q.uuid, q.target.xaddr, io.EOF, 0)
	}
	if len(s.cameras) != 0 {
		t.Errorf("%d made-up cameras are left", len(s.cameras))
	}
}
