package onvif

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"slices"
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
	if len(s.cameras) != 0 || s.full {
		t.Errorf("%d made-up cameras are left, full: %t", len(s.cameras), s.full)
	}
}

// A camera that comes after a flood of made-up ones waits for one request of each, not for one of each of their URLs.
func TestACamerasFirstServiceIsAskedBeforeOthersSecond(t *testing.T) {
	var s sightings
	for i := range 100 {
		uuid, first := fmt.Sprint(i), 0
		a := announcement{uuid: uuid}
		for n := range 4 {
			a.xaddrs = append(a.xaddrs, fmt.Sprintf("http://10.0.0.1/%s/%d", uuid, n))
		}
		_, _, ask := s.heard(path{index: 1, source: netip.MustParseAddr("10.0.0.1")}, a, time.Time{})
		for _, q := range ask {
			if !q.later {
				first++
			}
		}
		if first != 1 || len(ask) != len(a.xaddrs) {
			t.Fatalf("%d of %d services are asked first, want one of %d", first, len(ask), len(a.xaddrs))
		}
	}
}

// Paths on which a camera is not heard any more make room: of interfaces that were replaced, and of
// sources that somebody made up. Else it would not be found at its next address.
func TestSilentPathsMakeRoom(t *testing.T) {
	var s sightings
	a := announcement{uuid: "a", xaddrs: []string{"http://10.0.0.1/d"}}
	for index := range 2 * maxPaths {
		on := path{index: index, source: netip.MustParseAddr("10.0.0.1")}
		for range maxSilent + 1 {
			_, _, ask := s.heard(on, a, time.Time{})
			for _, q := range append(ask, s.endRound()...) {
				s.answered(q.uuid, q.target.xaddr, nil, 0)
			}
		}
		if n := len(s.cameras["a"].answers); n > 2 || s.full {
			t.Fatalf("%d paths after %d interfaces, full: %t", n, index+1, s.full)
		}
	}
	if cameras, _ := s.present(); len(cameras) != 1 || len(cameras[0].services) != 1 {
		t.Errorf("the cameras are %+v", cameras)
	}
}

// Nor do the addresses that one UUID announces grow while one of them is being asked, and
// paths and services of all cameras are bounded together: a product of bounds is none.
func TestAddressesAreBounded(t *testing.T) {
	var s sightings
	announce := func(uuid string, source byte, n int) (changed bool, asked int) {
		a := announcement{uuid: uuid}
		for i := range maxXAddrs {
			a.xaddrs = append(a.xaddrs, fmt.Sprintf("http://10.0.0.1/%s/%d/%d/%d", uuid, source, n, i))
		}
		changed, _, ask := s.heard(path{index: 1, source: netip.AddrFrom4([4]byte{10, 0, 0, source})}, a, time.Time{})
		return changed, len(ask)
	}
	asked := 0
	for n := range 1000 {
		_, more := announce("0", 1, n)
		asked += more
	}
	if n := len(s.cameras["0"].services); n > maxServices || asked > maxServices {
		t.Errorf("%d services of a camera of which %d are asked, want %d at most", n, asked, maxServices)
	}
	for i := range maxCameras {
		for source := range byte(maxPaths) {
			announce(fmt.Sprint(i), source, 0)
		}
	}
	paths, services := 0, 0
	for _, c := range s.cameras {
		paths, services = paths+len(c.answers), services+len(c.services)
	}
	if paths > maxAllPaths || services > maxAllServices || !s.full {
		t.Errorf("%d paths and %d services, want %d and %d at most; full: %t", paths, services, maxAllPaths,
			maxAllServices, s.full)
	}
	// Who is known may go on to announce itself, and it is said once that there is no room.
	if changed, _ := announce("1", 0, 0); changed {
		t.Error("nothing new is a change")
	}
	if changed, asked := announce("new", 1, 0); changed || asked > 0 {
		t.Errorf("no room for it: changed %t, %d asked", changed, asked)
	}
}

// Whatever comes in whatever order, every address that a camera tells is a service, each
// that is being asked has a question, and what nobody hears from is gone in the end.
func TestSightingsOfAnyHistory(t *testing.T) {
	for seed := range uint64(2000) {
		random := rand.New(rand.NewPCG(seed, 0))
		var s sightings
		var open []question
		answer := func(err error) {
			i := random.IntN(len(open))
			q := open[i]
			open = slices.Delete(open, i, i+1)
			s.answered(q.uuid, q.target.xaddr, err, 0)
		}
		check := func() {
			t.Helper()
			asking := 0
			for uuid, c := range s.cameras {
				if len(c.answers) == 0 || len(c.services) == 0 {
					t.Fatalf("seed %d: camera %s has %d answers and %d services", seed, uuid, len(c.answers),
						len(c.services))
				}
				for on, a := range c.answers {
					for _, xaddr := range a.xaddrs {
						if c.services[xaddr] == nil {
							t.Fatalf("seed %d: %s told %s on %v, which is no service", seed, uuid, xaddr, on)
						}
					}
				}
				for _, v := range c.services {
					if v.asking {
						asking++
					}
				}
			}
			if asking != len(open) {
				t.Fatalf("seed %d: %d services are being asked, and there are %d questions", seed, asking, len(open))
			}
			s.present()
			s.unanswered()
		}
		for range 60 {
			uuid := string(rune('a' + random.IntN(3)))
			switch random.IntN(8) {
			case 0, 1, 2:
				a := announcement{uuid: uuid, version: fmt.Sprint(random.IntN(2)), kind: kind(random.IntN(3))}
				for i := range 4 {
					if random.IntN(3) == 0 {
						a.xaddrs = append(a.xaddrs, fmt.Sprintf("http://10.0.0.%d/d", i))
					}
				}
				a.brief = len(a.xaddrs) == 0
				_, _, ask := s.heard(pathOf(byte(random.IntN(3))), a, time.Time{})
				open = append(open, ask...)
			case 3:
				open = append(open, s.endRound()...)
			case 4:
				open = append(open, s.bye(uuid)...)
			case 5:
				open = append(open, s.askLeaving(uuid)...)
			default:
				if len(open) > 0 {
					answer([]error{nil, io.EOF}[random.IntN(2)])
				}
			}
			check()
		}
		for range maxSilent + 2 {
			open = append(open, s.endRound()...)
			for len(open) > 0 {
				answer(io.EOF)
				check()
			}
		}
		if len(s.cameras) > 0 {
			t.Fatalf("seed %d: %d cameras are left that nobody hears from", seed, len(s.cameras))
		}
	}
}
