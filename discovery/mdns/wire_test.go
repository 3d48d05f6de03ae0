package mdns

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"
)

// The reference for the format is miekg/dns, an implementation of DNS by others.

func wireName(t testing.TB, labels ...string) name {
	t.Helper()
	n, err := newName(labels...)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func pack(t testing.TB, m *dns.Msg) []byte {
	t.Helper()
	packet, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return packet
}

func header(owner string, rtype, class uint16, ttl uint32) dns.RR_Header {
	return dns.RR_Header{Name: owner, Rrtype: rtype, Class: class, Ttl: ttl}
}

// announcement is what a responder sends for a service named "Dr. Ünal's Lamp".
func announcement() *dns.Msg {
	const instance, host = `Dr\.\ \195\156nal\'s\ Lamp._http._tcp.local.`, "lamp.local."
	m := &dns.Msg{MsgHdr: dns.MsgHdr{Response: true, Authoritative: true}, Compress: true}
	m.Answer = []dns.RR{
		&dns.PTR{Hdr: header("_http._tcp.local.", dns.TypePTR, dns.ClassINET, 4500), Ptr: instance},
	}
	m.Ns = []dns.RR{&dns.NSEC{Hdr: header(host, dns.TypeNSEC, dns.ClassINET, 120), NextDomain: host, TypeBitMap: []uint16{dns.TypeA}}}
	m.Extra = []dns.RR{
		&dns.SRV{Hdr: header(instance, dns.TypeSRV, dns.ClassINET|cacheFlush, 120), Port: 8080, Target: host},
		&dns.TXT{Hdr: header(instance, dns.TypeTXT, dns.ClassINET|cacheFlush, 4500), Txt: []string{"path=/x", "flag"}},
		&dns.A{Hdr: header(host, dns.TypeA, dns.ClassINET|cacheFlush, 120), A: net.IPv4(10, 0, 0, 7)},
		&dns.A{Hdr: header(host, dns.TypeA, dns.ClassCHAOS, 120), A: net.IPv4(10, 0, 0, 8)},
		&dns.AAAA{Hdr: header(host, dns.TypeAAAA, dns.ClassINET, 0), AAAA: net.ParseIP("fd00::7")},
	}
	return m
}

func TestParseResponse(t *testing.T) {
	got, err := parseResponse(pack(t, announcement()))
	if err != nil {
		t.Fatal(err)
	}
	instance, host := wireName(t, "Dr. Ünal's Lamp", "_http", "_tcp", "local"), wireName(t, "lamp", "local")
	want := []record{
		{name: wireName(t, "_http", "_tcp", "local"), rtype: typePTR, ttl: 4500, data: string(instance)},
		{name: instance, rtype: typeSRV, flush: true, ttl: 120, data: "\x00\x00\x00\x00\x1f\x90" + string(host)},
		{name: instance, rtype: typeTXT, flush: true, ttl: 4500, data: "\x07path=/x\x04flag"},
		{name: host, rtype: typeA, flush: true, ttl: 120, data: "\x0a\x00\x00\x07"},
		{name: host, rtype: typeAAAA, data: "\xfd" + strings.Repeat("\x00", 14) + "\x07"},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(record{})); diff != "" {
		t.Errorf("parseResponse() (-want +got):\n%s", diff)
	}
	if srvPort(got[1].data) != 8080 || srvTarget(got[1].data) != host {
		t.Errorf("SRV of %q: port %d, target %v", got[1].data, srvPort(got[1].data), srvTarget(got[1].data))
	}
	if diff := cmp.Diff([]string{"path=/x", "flag"}, slices.Collect(txtStrings(got[2].data))); diff != "" {
		t.Errorf("TXT (-want +got):\n%s", diff)
	}
}

// Of a TXT record the first strings are kept: what one costs is the same for all.
func TestLongTXTRecords(t *testing.T) {
	const instance = "Lamp._http._tcp.local."
	for name, tc := range map[string]struct {
		txt  []string
		want int
	}{
		"long strings":  {slices.Repeat([]string{strings.Repeat("x", 199)}, 10), 6},
		"empty strings": {slices.Repeat([]string{""}, 8000), maxTXTBytes},
		"as long as may be": {[]string{strings.Repeat("x", 255), strings.Repeat("x", 255), strings.Repeat("x", 255),
			strings.Repeat("x", 255), strings.Repeat("x", 255), strings.Repeat("x", 19)}, 6},
	} {
		m := &dns.Msg{MsgHdr: dns.MsgHdr{Response: true}}
		m.Answer = []dns.RR{&dns.TXT{Hdr: header(instance, dns.TypeTXT, dns.ClassINET, 120), Txt: tc.txt}}
		got, err := parseResponse(pack(t, m))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		kept := slices.Collect(txtStrings(got[0].data))
		if !slices.Equal(kept, tc.txt[:tc.want]) || len(got[0].data) > maxTXTBytes {
			t.Errorf("%s: %d strings of %d bytes are kept, want %d", name, len(kept), len(got[0].data), tc.want)
		}
	}
}

func TestRefusedPackets(t *testing.T) {
	whole := pack(t, announcement())
	set := func(offset int, value byte) []byte {
		packet := append([]byte(nil), whole...)
		packet[offset] = value
		return packet
	}
	// A name of one pointer, in a response with one record.
	pointer := func(to ...byte) []byte {
		return append([]byte{0, 0, 0x84, 0, 0, 0, 0, 1, 0, 0, 0, 0}, append(to, 0, 1, 0, 1, 0, 0, 0, 9, 0, 4, 1, 2, 3, 4)...)
	}
	long := pointer()
	long = append(long[:headerBytes:headerBytes], strings.Repeat("\x3f"+strings.Repeat("a", 63), 4)+"\x00"...)
	for name, packet := range map[string][]byte{
		"empty":                     {},
		"a query":                   set(2, 0),
		"opcode 2":                  set(2, 0x84|2<<3),
		"response code 3":           set(3, 3),
		"more records than said":    set(7, 9),
		"questions that are not":    set(5, 9),
		"pointer to itself":         pointer(0xc0, headerBytes),
		"pointer forward":           pointer(0xc0, headerBytes+4),
		"pointer beyond the end":    pointer(0xff, 0xff),
		"pointer loop":              pointer(1, 'a', 0xc0, headerBytes),
		"label of a reserved kind":  pointer(0x80, 0),
		"name of more than 255":     long,
		"half a pointer at the end": whole[:headerBytes+1],
	} {
		t.Run(name, func(t *testing.T) {
			if records, err := parseResponse(packet); err == nil {
				t.Errorf("parseResponse() = %+v, want an error", records)
			}
		})
	}
	for length := range whole {
		if _, err := parseResponse(whole[:length]); err == nil {
			t.Errorf("parseResponse() of %d bytes of %d succeeds", length, len(whole))
		}
	}
}

// Whatever our parser takes, the other implementation reads alike.
func FuzzParseResponse(f *testing.F) {
	f.Add(pack(f, announcement()))
	f.Add([]byte{0, 0, 0x84, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 9, 0, 4, 1, 2, 3, 4})
	f.Fuzz(func(t *testing.T, packet []byte) {
		records, err := parseResponse(packet)
		if err != nil {
			return
		}
		for _, r := range records {
			for n := r.name; n != ""; {
				if length := int(n[0]); length == 0 || length > maxLabelBytes || length >= len(n) {
					t.Fatalf("malformed name %q", r.name)
				}
				_, n = n.cut()
			}
			switch r.rtype {
			case typeSRV:
				_ = srvPort(r.data)
				_ = srvTarget(r.data).String()
			case typeTXT:
				if len(r.data) > maxTXTBytes {
					t.Fatalf("%d bytes of TXT", len(r.data))
				}
				for range txtStrings(r.data) {
				}
			case typeA, typeAAAA:
				if !r.address().IsValid() {
					t.Fatalf("invalid address %q", r.data)
				}
			}
		}
		var other dns.Msg
		if other.Unpack(packet) != nil {
			return // stricter in types that we skip
		}
		var theirs []string
		for _, rr := range append(append(other.Answer, other.Ns...), other.Extra...) {
			if h := rr.Header(); h.Class&^cacheFlush == classIN {
				switch rr := rr.(type) {
				case *dns.A:
					theirs = append(theirs, fmt.Sprint(h.Ttl, rr.A))
				case *dns.SRV:
					theirs = append(theirs, fmt.Sprint(h.Ttl, rr.Port))
				}
			}
		}
		var ours []string
		for _, r := range records {
			switch r.rtype {
			case typeA:
				ours = append(ours, fmt.Sprint(r.ttl, r.address()))
			case typeSRV:
				ours = append(ours, fmt.Sprint(r.ttl, srvPort(r.data)))
			}
		}
		if diff := cmp.Diff(theirs, ours); diff != "" {
			t.Errorf("miekg/dns and we read differently (-theirs +ours):\n%s", diff)
		}
	})
}

func TestBuildQueries(t *testing.T) {
	http, print := wireName(t, "_http", "_tcp", "local"), wireName(t, "_ipp", "_tcp", "local")
	questions := []question{{http, typePTR}, {print, typePTR}, {wireName(t, "lamp", "local"), typeA}}
	var known []knownAnswer
	for i := range 100 {
		known = append(known, knownAnswer{http, wireName(t, fmt.Sprintf("A lamp with a long name %d", i), "_http", "_tcp", "local"), 4000})
	}
	// Of a question that is not asked.
	known = append(known, knownAnswer{wireName(t, "_ssh", "_tcp", "local"), wireName(t, "x", "_ssh", "_tcp", "local"), 4000})

	packets := buildQueries(questions, known)
	var gotQuestions, gotAnswers []string
	for i, packet := range packets {
		if len(packet) > maxQueryBytes {
			t.Errorf("packet %d has %d bytes, of %d allowed", i, len(packet), maxQueryBytes)
		}
		var m dns.Msg
		if err := m.Unpack(packet); err != nil {
			t.Fatalf("packet %d: %v", i, err)
		}
		if last := i == len(packets)-1; m.Truncated == last || m.Response {
			t.Errorf("packet %d of %d: truncated %t, response %t", i, len(packets), m.Truncated, m.Response)
		}
		for _, q := range m.Question {
			gotQuestions = append(gotQuestions, fmt.Sprint(i, " ", q.Name, " ", dns.TypeToString[q.Qtype], " ", q.Qclass))
		}
		for _, rr := range m.Answer {
			gotAnswers = append(gotAnswers, rr.Header().Name+" "+rr.(*dns.PTR).Ptr)
		}
	}
	if diff := cmp.Diff([]string{"0 _http._tcp.local. PTR 1", "0 _ipp._tcp.local. PTR 1", "0 lamp.local. A 1"}, gotQuestions); diff != "" {
		t.Errorf("questions (-want +got):\n%s", diff)
	}
	if len(packets) < 3 || len(gotAnswers) != 100 {
		t.Errorf("%d packets with %d known answers, want at least 3 with 100", len(packets), len(gotAnswers))
	}
	if want := `_http._tcp.local. A\ lamp\ with\ a\ long\ name\ 99._http._tcp.local.`; gotAnswers[len(gotAnswers)-1] != want {
		t.Errorf("last known answer is %s, want %s", gotAnswers[len(gotAnswers)-1], want)
	}
}

func TestQuestionsBeyondAPacketGoIntoOthers(t *testing.T) {
	var questions []question
	for i := range 200 {
		questions = append(questions, question{wireName(t, fmt.Sprintf("host-%d", i), "local"), typeA})
	}
	asked := 0
	for _, packet := range buildQueries(questions, nil) {
		var m dns.Msg
		if err := m.Unpack(packet); err != nil || m.Truncated || len(packet) > maxQueryBytes {
			t.Fatalf("packet of %d bytes: truncated %t, error %v", len(packet), m.Truncated, err)
		}
		asked += len(m.Question)
	}
	if asked != len(questions) {
		t.Errorf("%d questions asked, want %d", asked, len(questions))
	}
}
