package onvif

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"
)

// camera is a camera that is there.
type camera struct {
	uuid     string
	scopes   []string   // all that it told, sorted
	version  string     // of what it told: another one when that changed
	since    time.Time  // first heard
	asking   bool       // a service of it is being asked for the first time
	services []verified // best first
}

// verified is a service that answered.
type verified struct {
	target
	offset time.Duration // of the camera's clock to ours
	ipv4   bool          // it was told over IPv4
}

// present returns the cameras that are there, sorted by UUID, and whether others are
// being asked for the first time.
func (s *sightings) present() (cameras []camera, pending bool) {
	for _, uuid := range slices.Sorted(maps.Keys(s.cameras)) {
		sighted := s.cameras[uuid]
		c := camera{uuid: uuid, since: sighted.since}
		var versions []string
		for _, a := range sighted.answers {
			c.scopes = append(c.scopes, a.scopes...)
			versions = append(versions, a.version)
		}
		c.scopes, c.version = sortedSet(c.scopes), strings.Join(sortedSet(versions), " ")
		for xaddr, v := range sighted.services {
			c.asking = c.asking || !v.asked
			if !v.verified {
				continue
			}
			told, _ := sighted.describe(xaddr)
			c.services = append(c.services, told)
		}
		pending = pending || c.asking
		if len(c.services) > 0 {
			slices.SortFunc(c.services, verified.compare)
			cameras = append(cameras, c)
		}
	}
	return cameras, pending
}

// unanswered is a camera that announces itself, and does not answer as a camera.
type unanswered struct {
	camera
	target
	err error // of the last request to the target
}

// unanswered returns these cameras, sorted by UUID.
func (s *sightings) unanswered() (all []unanswered) {
	for _, uuid := range slices.Sorted(maps.Keys(s.cameras)) {
		sighted := s.cameras[uuid]
		if !sighted.unanswered() {
			continue
		}
		u := unanswered{camera: camera{uuid: uuid}}
		for _, a := range sighted.answers {
			u.scopes = append(u.scopes, a.scopes...)
		}
		first := slices.Min(slices.Collect(maps.Keys(sighted.services)))
		v, _ := sighted.describe(first)
		u.target, u.err = v.target, sighted.services[first].err
		all = append(all, u)
	}
	return all
}

// unanswered is whether none of the camera's services was ever there, though each was
// asked maxUnanswered times.
func (c *sighting) unanswered() bool {
	for _, v := range c.services {
		if v.verified || v.failures < maxUnanswered {
			return false
		}
	}
	return len(c.services) > 0
}

func sortedSet(values []string) []string {
	slices.Sort(values)
	return slices.Compact(values)
}

// compare orders services by use to a broker. The order is by the URL alone at last,
// so that all nodes prefer the same one.
func (v verified) compare(w verified) int {
	return cmp.Or(
		cmp.Compare(v.rank(), w.rank()),
		cmp.Compare(v.xaddr, w.xaddr),
	)
}

func (v verified) rank() int {
	rank := 0
	if v.linkLocal() { // pods cannot reach it
		rank += 4
	}
	if !isPlain(v.xaddr) {
		rank += 2
	}
	if a := hostAddress(v.xaddr); a.Is6() {
		rank++
	}
	return rank
}

// akri is whether Akri finds the service: one that is told over IPv4, of plain HTTP
// and not link-local.
func (v verified) akri() bool {
	return v.ipv4 && isPlain(v.xaddr) && !v.linkLocal()
}

// isPlain is whether a valid XAddr is of HTTP without TLS.
func isPlain(xaddr string) bool {
	_, plain := cutPrefixFold(xaddr, "http:")
	return plain
}

func (v verified) linkLocal() bool { return hostAddress(v.xaddr).IsLinkLocalUnicast() }
