package mdns

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"
	"unicode/utf8"
)

// found is an instance that can be reached.
type found struct {
	label     string // the instance's name
	service   service
	host      string // without the dot at the end
	port      uint16
	addresses []netip.Addr // the best first; link-local IPv6 with its zone
	txt       string       // the TXT record's data

	// changing is true while addresses are outdated but still there: they are told
	// once they are gone.
	changing bool
}

// snapshot returns the instances of a service, sorted by name. One name on several
// interfaces is one instance: that of the interface with the lowest index, with the
// addresses of all interfaces that lead to the same host and port.
func (c *cache) snapshot(s service) []found {
	type place struct {
		link     *link
		instance *instance
	}
	places := map[name][]place{}
	for _, index := range slices.Sorted(maps.Keys(c.links)) {
		l := c.links[index]
		for key, i := range l.instances {
			if i.ptrs[s.query] != nil && i.hasAddress(l) && (i.txt != nil || i.noTXT) {
				places[key] = append(places[key], place{l, i})
			}
		}
	}
	var all []found
	for _, key := range slices.Sorted(maps.Keys(places)) {
		first := places[key][0]
		srv := first.instance.srv.data
		label, _ := first.instance.name.cut()
		f := found{label: label, service: s, host: srvTarget(srv).String(), port: srvPort(srv)}
		if first.instance.txt != nil {
			f.txt = first.instance.txt.data
		}
		var candidates []candidate
		for _, p := range places[key] {
			if d := p.instance.srv.data; srvPort(d) == f.port && srvTarget(d).fold() == srvTarget(srv).fold() {
				host := p.link.hosts[srvTarget(d).fold()]
				candidates = append(candidates, p.link.candidates(host)...)
				f.changing = f.changing || host.changing()
			}
		}
		f.addresses = rank(candidates)
		all = append(all, f)
	}
	return all
}

// settled is whether a service has been browsed for so long that whoever is there has
// answered, though a packet may have been lost, and all that answered is complete.
// wait is how long until it is worth asking again.
func (c *cache) settled(now time.Time, s service) (wait time.Duration) {
	age := now.Sub(c.services[s.query].since)
	if age < firstAnswers {
		return firstAnswers - age
	}
	for _, l := range c.links {
		for key, i := range l.instances {
			if i.ptrs[s.query] != nil && len(l.missing(key, i)) > 0 {
				return max(firstComplete-age, 0)
			}
		}
	}
	return 0
}

const (
	// firstAnswers is time for two questions, at most 120 ms and a second after the
	// start, and answers to them within 120 ms.
	firstAnswers = 1500 * time.Millisecond
	// firstComplete bounds the wait for instances that lack something.
	firstComplete = 3 * time.Second
)

func (h *host) changing() bool {
	for _, e := range h.addresses {
		if e.flushed {
			return true
		}
	}
	return false
}

// candidate is an address with what its rank goes by.
type candidate struct {
	address netip.Addr
	onLink  bool // in a subnet of the interface that it was heard on
}

func (l *link) candidates(h *host) (all []candidate) {
	for address := range h.addresses {
		onLink := slices.ContainsFunc(l.prefixes, func(p netip.Prefix) bool { return p.Contains(address) })
		if address.Is6() && address.IsLinkLocalUnicast() {
			address = address.WithZone(l.device)
		}
		all = append(all, candidate{address, onLink})
	}
	return all
}

// rank sorts addresses: those in a subnet of ours first, IPv4 before IPv6, lower ones
// first. Link-local IPv6 addresses, which mean nothing to a pod without the host's
// network, are left out if there is any other.
func rank(candidates []candidate) []netip.Addr {
	linkLocal := func(a netip.Addr) bool { return a.Is6() && a.IsLinkLocalUnicast() }
	class := func(c candidate) int {
		switch {
		case linkLocal(c.address):
			return 2
		case !c.onLink:
			return 1
		}
		return 0
	}
	slices.SortFunc(candidates, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(class(a), class(b)), a.address.Compare(b.address))
	})
	var addresses []netip.Addr
	for _, c := range candidates {
		if linkLocal(c.address) && len(addresses) > 0 && !linkLocal(addresses[0]) {
			break
		}
		if !slices.Contains(addresses, c.address) {
			addresses = append(addresses, c.address)
		}
	}
	return addresses
}

// validLabel is whether an instance's name is text as RFC 6763 4.1.1 wants it: UTF-8
// without control characters. It becomes an ID and an environment variable.
func validLabel(label string) bool {
	for _, r := range label {
		if r < ' ' || r == 0x7f || r == utf8.RuneError {
			return false
		}
	}
	return label != ""
}

// validHost is whether a host's name is not empty and of valid labels.
func validHost(n name) bool {
	for rest := n; rest != ""; {
		var label string
		if label, rest = rest.cut(); !validLabel(label) {
			return false
		}
	}
	return n != ""
}
