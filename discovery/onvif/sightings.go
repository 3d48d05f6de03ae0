package onvif

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"time"
)

const (
	// maxSilent is how many rounds of probes a camera may leave unanswered before it
	// is asked directly: UDP loses packets.
	maxSilent = 3

	// maxCameras, and the paths and services of all of them, bound what a flood of made-up
	// cameras costs: 50 MiB.
	maxCameras     = 2048
	maxAllPaths    = 2 * maxCameras
	maxAllServices = 4 * maxCameras

	// byeChecks is how often a camera is asked that said Bye but still answers: it may take some
	// seconds to shut down. After that the Bye was not the camera's. byeInterval doubles: 6.2 s in all.
	byeChecks   = 6
	byeInterval = 200 * time.Millisecond

	// maxUnanswered is how many requests in a row a camera may leave unanswered before the
	// user is warned: one that starts announces itself some seconds before it answers.
	maxUnanswered = 3

	// maxPaths and maxServices bound what a flood of sources, or of addresses, for one UUID
	// costs.
	maxPaths, maxServices = 32, 64
)

// path is where a camera is heard. Cheap cameras share their maker's UUID, so one UUID
// may be heard of several sources.
type path struct {
	index  int // of the interface
	source netip.Addr
}

// sightings are the cameras that were heard. They do no I/O: the caller passes on what
// it hears, and asks whom it is told to. Not safe for concurrent use.
type sightings struct {
	cameras map[string]*sighting // by UUID
	full    bool                 // an announcement was ignored in this round, for want of room
}

// sighting is one camera.
type sighting struct {
	uuid     string
	since    time.Time // first heard
	answers  map[path]*answer
	services map[string]*service // by XAddr
	leaving  int                 // how often it was asked since a Bye; 0 without one
}

// answer is what a camera told on one path. It may tell something else on another.
type answer struct {
	xaddrs    []string
	scopes    []string
	version   string
	silent    int  // rounds since the last message
	heard     bool // in the present round
	contested bool // another source took the UUID since: the address may be an old one
}

// service is the device service at one XAddr.
type service struct {
	verified bool          // it answered when it was last asked
	asked    bool          // it was asked at least once
	asking   bool          // it is being asked
	mute     bool          // it did not answer when it was last asked, and was not told since
	failed   bool          // it is gone, or not told any more: it goes once all of the camera's were asked
	told     verified      // as it was last told
	offset   time.Duration // of the camera's clock to ours
	failures int           // requests in a row that were not answered as a camera does
	err      error         // of the last one
}

// question is a service to ask whether it is there.
type question struct {
	uuid   string
	target target
	later  bool // after the others: it did not answer last time, or another one of the camera is asked first
}

// target is a service, and what is needed to connect to it.
type target struct {
	xaddr  string
	source netip.Addr // that the XAddr was told from
	zone   string     // for link-local addresses: the index of the interface
}

// heard takes an announcement. It returns whether the cameras changed, and which
// services to ask. resolve is whether to ask where the camera's service is: it did not
// say, or not what it is.
func (s *sightings) heard(on path, a announcement, now time.Time) (changed, resolve bool, ask []question) {
	var known *answer
	if camera := s.cameras[a.uuid]; camera != nil {
		known = camera.answers[on]
	}
	// Without XAddrs it is where it was, unless something changed.
	if known != nil && a.brief && a.version == known.version {
		a.xaddrs, a.scopes, a.brief = known.xaddrs, known.scopes, false
	}
	if a.brief {
		return false, a.kind != resolveMatch, nil
	}
	if !s.hasRoom(on, a) {
		changed, s.full = !s.full, true
		return changed, false, nil
	}
	camera := s.cameras[a.uuid]
	if camera == nil {
		camera = &sighting{uuid: a.uuid, since: now, answers: map[path]*answer{}, services: map[string]*service{}}
		if s.cameras == nil {
			s.cameras = map[string]*sighting{}
		}
		s.cameras[a.uuid] = camera
	}
	if known == nil {
		ask = camera.contest(on)
	}
	camera.leaving = 0
	camera.answers[on] = &answer{xaddrs: a.xaddrs, scopes: a.scopes, version: a.version, heard: true}
	for _, xaddr := range a.xaddrs {
		v := camera.services[xaddr]
		if v == nil {
			v = &service{}
			camera.services[xaddr] = v
			ask = camera.ask(ask, xaddr)
		}
		v.mute, v.failed = false, false
	}
	if known != nil && slices.Equal(known.xaddrs, a.xaddrs) {
		changed = known.version != a.version || !slices.Equal(known.scopes, a.scopes)
		return changed, false, ask
	}
	for xaddr, v := range camera.services {
		told := false
		v.told, told = camera.describe(xaddr)
		v.failed = v.failed || !told
	}
	camera.dropFailed()
	return true, false, ask
}

// hasRoom is whether what an announcement brings can be kept.
func (s *sightings) hasRoom(on path, a announcement) bool {
	camera := s.cameras[a.uuid]
	if camera == nil {
		if len(s.cameras) == maxCameras {
			return false
		}
		camera = &sighting{}
	}
	paths, services := 0, 0
	if camera.answers[on] == nil {
		paths = 1
	}
	for _, xaddr := range a.xaddrs {
		if camera.services[xaddr] == nil {
			services++
		}
	}
	if paths+services == 0 {
		return true
	}
	if len(camera.answers)+paths > maxPaths || len(camera.services)+services > maxServices {
		return false
	}
	for _, c := range s.cameras {
		paths, services = paths+len(c.answers), services+len(c.services)
	}
	return paths <= maxAllPaths && services <= maxAllServices
}

// contest asks whether a camera is still where it was heard so far on an interface,
// now that it is heard from another address: DHCP may have moved it.
func (c *sighting) contest(on path) (ask []question) {
	for _, other := range slices.SortedFunc(maps.Keys(c.answers), path.compare) {
		if other.index != on.index || other.source.Is6() != on.source.Is6() {
			continue
		}
		c.answers[other].contested = true
		for _, xaddr := range c.answers[other].xaddrs {
			ask = c.ask(ask, xaddr)
		}
	}
	return ask
}

// bye takes a camera's Bye. Anybody could have sent it, so the camera is asked.
func (s *sightings) bye(uuid string) []question {
	camera := s.cameras[uuid]
	if camera == nil || camera.leaving > 0 {
		return nil
	}
	camera.leaving = 1
	return camera.askAll(nil)
}

// askLeaving asks a camera that said Bye, if it did not announce itself since.
func (s *sightings) askLeaving(uuid string) (ask []question) {
	camera := s.cameras[uuid]
	if camera == nil || camera.leaving == 0 {
		return nil
	}
	camera.leaving++
	return camera.askAll(nil)
}

// answered takes what came of a question: nil if the service is there, and how far the
// camera's clock is ahead. It returns whether the cameras changed, and when to call
// askLeaving; 0 for never.
func (s *sightings) answered(uuid, xaddr string, err error, offset time.Duration) (changed bool, again time.Duration) {
	camera := s.cameras[uuid]
	if camera == nil || camera.services[xaddr] == nil {
		return false, 0 // it told other addresses meanwhile
	}
	v := camera.services[xaddr]
	unanswered := camera.unanswered()
	_, told := camera.describe(xaddr)
	there := err == nil
	v.failures, v.err = v.failures+1, err
	if there {
		v.failures = 0
	}
	changed = !v.asked || camera.unanswered() != unanswered
	v.asking, v.asked, v.mute, v.failed = false, true, !there, !told
	switch {
	case there:
		changed = changed || !v.verified
		v.verified, v.offset = true, offset
	case camera.leaving > 0 || camera.silent(xaddr):
		v.failed = true
	default:
		// A camera that answers probes stays, whatever a single request says.
	}
	if camera.asking() {
		return changed, 0
	}
	if camera.leaving > 0 && camera.leaving < byeChecks && !camera.mute() {
		return changed, byeInterval << (camera.leaving - 1) // it is on its way, perhaps
	}
	camera.leaving = 0
	if camera.dropFailed() {
		changed = true
	}
	if len(camera.answers) == 0 {
		delete(s.cameras, uuid)
	}
	return changed, 0
}

// endRound counts who did not answer. It returns whom to ask: silent cameras, and
// those that announce themselves but did not answer when they were asked.
func (s *sightings) endRound() (ask []question) {
	s.full = false
	for _, uuid := range slices.Sorted(maps.Keys(s.cameras)) {
		camera := s.cameras[uuid]
		for _, a := range camera.answers {
			if !a.heard {
				a.silent++
			}
			a.heard = false
		}
		maps.DeleteFunc(camera.answers, func(on path, _ *answer) bool { return camera.stale(on) })
		silent := false
		for _, xaddr := range slices.Sorted(maps.Keys(camera.services)) {
			silent = silent || camera.silent(xaddr)
			if !camera.services[xaddr].verified {
				ask = camera.ask(ask, xaddr)
			}
		}
		if silent { // on one path: is all of it gone?
			ask = camera.askAll(ask)
		}
	}
	return ask
}

func (c *sighting) askAll(questions []question) []question {
	for _, xaddr := range slices.Sorted(maps.Keys(c.services)) {
		questions = c.ask(questions, xaddr)
	}
	return questions
}

// mute is whether none of the camera's services answers.
func (c *sighting) mute() bool {
	return !c.any(func(v *service) bool { return !v.mute && !v.failed })
}

func (c *sighting) asking() bool { return c.any(func(v *service) bool { return v.asking }) }

func (c *sighting) any(is func(*service) bool) bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(c.services)), is)
}

// ask appends a question, unless the service is being asked already.
func (c *sighting) ask(questions []question, xaddr string) []question {
	v := c.services[xaddr]
	if v.asking {
		return questions
	}
	later := v.failures > 0 || c.asking()
	v.asking = true
	told, _ := c.describe(xaddr)
	return append(questions, question{c.uuid, told.target, later})
}

// describe returns a service as the camera tells it now, or told it last.
func (c *sighting) describe(xaddr string) (v verified, told bool) {
	v.target.xaddr = xaddr
	best := false // of a path that was heard of late
	for _, on := range slices.SortedFunc(maps.Keys(c.answers), path.compare) {
		a := c.answers[on]
		if !slices.Contains(a.xaddrs, xaddr) {
			continue
		}
		if !told || !best && a.silent == 0 {
			v.source, v.zone = on.source, strconv.Itoa(on.index)
			best = a.silent == 0
		}
		told = true
		v.ipv4 = v.ipv4 || on.source.Is4()
	}
	if !told {
		v = c.services[xaddr].told
	}
	v.offset = c.services[xaddr].offset
	return v, told
}

func (p path) compare(q path) int {
	return cmp.Or(
		cmp.Compare(p.source.BitLen(), q.source.BitLen()), // IPv4 first
		cmp.Compare(p.index, q.index),
		p.source.Compare(q.source),
	)
}

// silent is whether no path on which a service was told was heard of late.
func (c *sighting) silent(xaddr string) bool {
	for _, a := range c.answers {
		if a.silent < maxSilent && !a.contested && slices.Contains(a.xaddrs, xaddr) {
			return false
		}
	}
	return true
}

// stale is whether nothing was heard on a path of late, and other paths of its version of IP have all
// the addresses that it had: an interface that was replaced has another index, and anybody can make sources up.
func (c *sighting) stale(on path) bool {
	is := c.answers[on]
	return is.silent >= maxSilent && !slices.ContainsFunc(is.xaddrs, func(xaddr string) bool {
		for other, a := range c.answers {
			if other.source.Is4() == on.source.Is4() && a.silent < maxSilent && slices.Contains(a.xaddrs, xaddr) {
				return false
			}
		}
		return true
	})
}

// dropFailed forgets services that are gone, and the paths on which nothing else is
// left. It waits until none of the camera's is being asked. If one is gone and none
// answers, all are: a camera that loses power goes as a whole, instead of turning into
// its IPv6 address until that was silent as long as the other.
func (c *sighting) dropFailed() (changed bool) {
	if c.asking() {
		return false
	}
	all := c.mute() && c.any(func(v *service) bool { return v.failed })
	for xaddr, v := range c.services {
		if !v.failed && !all {
			continue
		}
		changed = changed || v.verified
		delete(c.services, xaddr)
		for on, a := range c.answers {
			a.xaddrs = slices.DeleteFunc(slices.Clone(a.xaddrs), func(x string) bool { return x == xaddr })
			if len(a.xaddrs) == 0 {
				delete(c.answers, on)
			}
		}
	}
	return changed
}
