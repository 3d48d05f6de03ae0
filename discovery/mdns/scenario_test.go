package mdns

import (
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Each file in testdata/scenarios is a story of commands, each followed by ---- and what
// comes of it. -update writes down what comes of them now.
//
//	browse|unbrowse SERVICE
//	link INDEX NAME PREFIX…      the interface is up
//	fresh INDEX NAME PREFIX…     it has a new socket
//	lose INDEX                   it is down
//	run DURATION                 time passes: prints what is asked, and when
//	receive INDEX                a packet with the records in the lines below:
//	  ptr SERVICE INSTANCE TTL
//	  srv INSTANCE HOST:PORT TTL
//	  txt INSTANCE TTL ITEM…
//	  a|A HOST ADDRESS TTL       with A: cache-flush
//	show SERVICE                 prints the devices, and whether they are settled
//
// Instances are written as Lamp/_http._tcp; %20 and the like are bytes of it. Of random
// delays all are the shortest.
var update = flag.Bool("update", false, "write the scenarios' files")

func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/scenarios/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			s := newScenario(t)
			var output []string
			for block := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n\n") {
				input, want, isCommand := strings.Cut(block+"\n", "\n----\n")
				if !isCommand {
					output = append(output, block)
					continue
				}
				got := s.commands(input)
				output = append(output, strings.TrimSpace(input+"\n----\n"+got))
				if !*update && strings.TrimSpace(got) != strings.TrimSpace(want) {
					t.Errorf("%s at %v:\n%s\n---- want\n%s\n---- got\n%s", file, s.elapsed(), input, want, got)
				}
			}
			if *update {
				if err := os.WriteFile(file, []byte(strings.Join(output, "\n\n")+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

type scenario struct {
	t          *testing.T
	cache      *cache
	start, now time.Time
	output     strings.Builder
}

func newScenario(t *testing.T) *scenario {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	return &scenario{t: t, cache: newCache(func() float64 { return 0 }), start: start, now: start}
}

func (s *scenario) elapsed() time.Duration { return s.now.Sub(s.start) }

func (s *scenario) printf(format string, args ...any) { fmt.Fprintf(&s.output, format+"\n", args...) }

func (s *scenario) commands(input string) string {
	s.output.Reset()
	var packet []record
	receive := -1
	flush := func() {
		if receive >= 0 {
			s.cache.receive(s.now, receive, packet)
		}
		receive, packet = -1, nil
	}
	for line := range strings.SplitSeq(input, "\n") {
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		if strings.HasPrefix(line, " ") {
			packet = append(packet, s.record(words))
			continue
		}
		flush()
		switch words[0] {
		case "browse":
			s.cache.addService(s.now, s.service(words[1]))
		case "unbrowse":
			s.cache.removeService(s.service(words[1]))
		case "link", "fresh":
			var prefixes []netip.Prefix
			for _, p := range words[3:] {
				prefixes = append(prefixes, netip.MustParsePrefix(p))
			}
			s.cache.addLink(s.now, s.number(words[1]), words[2], prefixes, words[0] == "fresh")
		case "lose":
			s.cache.loseLink(s.now, s.number(words[1]))
		case "run":
			s.run(words[1])
		case "receive":
			receive = s.number(words[1])
		case "show":
			s.show(s.service(words[1]))
		default:
			s.t.Fatalf("unknown command %q", line)
		}
	}
	flush()
	return s.output.String()
}

func (s *scenario) run(duration string) {
	d, err := time.ParseDuration(duration)
	if err != nil {
		s.t.Fatal(err)
	}
	end := s.now.Add(d)
	for steps := 0; !s.cache.due.IsZero() && !s.cache.due.After(end); steps++ {
		if steps > 10_000 {
			s.t.Fatalf("at %v the cache is due all the time", s.elapsed())
		}
		if s.cache.due.After(s.now) {
			s.now = s.cache.due
		}
		for _, a := range s.cache.advance(s.now) {
			for _, q := range a.questions {
				s.printf("%v ask %d: %s %s", s.elapsed().Round(time.Millisecond), a.link, q.name,
					map[uint16]string{typeA: "A", typeAAAA: "AAAA", typePTR: "PTR", typeTXT: "TXT", typeSRV: "SRV"}[q.rtype])
			}
			for _, k := range a.known {
				s.printf("  known: %s for %d s", k.instance, k.ttl)
			}
		}
	}
	s.now = end
}

func (s *scenario) show(service service) {
	for _, f := range s.cache.snapshot(service) {
		changing := ""
		if f.changing {
			changing = " (changing)"
		}
		s.printf("%q at %s:%d %v txt %q%s", f.label, f.host, f.port, f.addresses, slices.Collect(txtStrings(f.txt)),
			changing)
	}
	if wait := s.cache.settled(s.now, service); wait > 0 {
		s.printf("not settled for another %v", wait)
	}
}

func (s *scenario) number(word string) int {
	n, err := strconv.Atoi(word)
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

func (s *scenario) service(word string) service {
	service, err := parseService(word)
	if err != nil {
		s.t.Fatal(err)
	}
	return service
}

func (s *scenario) record(words []string) record {
	instance := func(word string) name {
		label, service, _ := strings.Cut(word, "/")
		return wireName(s.t, append([]string{unescape(label)}, append(strings.Split(service, "."), "local")...)...)
	}
	host := func(word string) name { return wireName(s.t, strings.Split(unescape(word), ".")...) }
	ttl := func(word string) uint32 { return uint32(s.number(word)) }
	switch words[0] {
	case "ptr":
		return record{name: host(words[1] + ".local"), rtype: typePTR, ttl: ttl(words[3]), data: string(instance(words[2]))}
	case "srv":
		target, port, _ := strings.Cut(words[2], ":")
		p := s.number(port)
		return record{name: instance(words[1]), rtype: typeSRV, ttl: ttl(words[3]), flush: true,
			data: string([]byte{0, 0, 0, 0, byte(p >> 8), byte(p)}) + string(host(target))}
	case "txt":
		data := ""
		for _, item := range words[3:] {
			item = unescape(item)
			data += string(rune(len(item))) + item
		}
		return record{name: instance(words[1]), rtype: typeTXT, ttl: ttl(words[2]), flush: true, data: data}
	case "a", "A":
		address := netip.MustParseAddr(words[2])
		r := record{name: host(words[1]), rtype: typeA, ttl: ttl(words[3]), flush: words[0] == "A", data: string(address.AsSlice())}
		if address.Is6() {
			r.rtype = typeAAAA
		}
		return r
	}
	s.t.Fatalf("unknown record %q", words)
	return record{}
}

func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' {
			n, _ := strconv.ParseUint(s[i+1:i+3], 16, 8)
			b.WriteByte(byte(n))
			i += 2
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
