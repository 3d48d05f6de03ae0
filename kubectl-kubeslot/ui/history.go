package ui

import (
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeslot/kubeslot/kubectl-kubeslot/view"
	"github.com/kubeslot/kubeslot/types/assignment"
)

const (
	// window is how far back the page looks.
	window = time.Hour
	// maxEvents bounds the memory of a History: the oldest go first.
	maxEvents = 20_000
	// sentEvents is how many events a page is sent at once.
	sentEvents = 300
	// resolution is the shortest time between two points.
	resolution = 5 * time.Second
)

// EventKind is what happened.
type EventKind string

// What happens to a slot, to a pod that asks for some, and to a device. The first three are states of slots.
const (
	SlotAssigned EventKind = "Assigned"
	SlotHeld     EventKind = "Held"
	SlotMissing  EventKind = "Missing" // the pod runs without it
	SlotReleased EventKind = "Released"
	PodWaits     EventKind = "Waits"
	PodPlaced    EventKind = "Placed" // it has its slots
	PodGone      EventKind = "Left"   // it is gone, without slots
	DeviceFound  EventKind = "Found"
	DeviceGone   EventKind = "Gone"
	DeviceLost   EventKind = "Lost"    // no node reaches it
	DeviceBack   EventKind = "Reached" // a node reaches it again
)

// Event is something that happened.
type Event struct {
	Time      int64     `json:"time"` // milliseconds since 1970
	Kind      EventKind `json:"kind"`
	Device    string    `json:"device,omitempty"` // Instance
	Label     string    `json:"label,omitempty"`  // the device's or, if it has none, its id
	Slot      int       `json:"slot,omitempty"`   // index, of what happens to a slot
	Pod       string    `json:"pod,omitempty"`
	Container string    `json:"container,omitempty"`
	Node      string    `json:"node,omitempty"`
}

// Point is how many slots were in which state at a time, and how many pods waited.
type Point struct {
	Time     int64 `json:"time"` // milliseconds since 1970
	Held     int   `json:"held"`
	Assigned int   `json:"assigned"`
	Total    int   `json:"total"`
	Waiting  int   `json:"waiting"`
}

// History is what happened in the last hour. It is told of each State in turn; what
// happened before the first it knows only of what is still there. It is not safe for
// concurrent use.
type History struct {
	events   []Event // by time
	points   []Point // by time
	recorded int64
}

// Begin records the first state, and what it tells of the time before it.
func (h *History) Begin(s *State, pods []corev1.Pod, now time.Time) {
	h.recorded = now.UnixMilli()
	from := now.Add(-window)
	for _, d := range s.Devices {
		for _, t := range d.Taken {
			if t.Since > from.Unix() && t.Since <= now.Unix() {
				h.events = append(h.events, eventOf(&d, &t, EventKind(t.State), t.Since*1000))
			}
		}
	}
	for i := range s.Pods {
		if p := &s.Pods[i]; p.waits() && p.Since > from.Unix() && p.Since <= now.Unix() {
			h.events = append(h.events, Event{Time: p.Since * 1000, Kind: PodWaits, Pod: p.Namespace + "/" + p.Name})
		}
	}
	for i := range pods {
		h.events = append(h.events, past(&pods[i], s, from, now)...)
	}
	slices.SortStableFunc(h.events, byTime)
	h.points = pastPoints(h.events, s, from, now)
	h.trim(now)
}

func byTime(a, b Event) int { return int(a.Time - b.Time) }

func eventOf(d *Device, t *Taken, kind EventKind, at int64) Event {
	return Event{Time: at, Kind: kind, Device: d.Name, Label: d.called(), Slot: t.Index, Pod: t.Pod, Container: t.Container, Node: t.Node}
}

// past is what a pod that has ended, and is still there, tells of the slots that it had. The times are of its node's
// clock, which may be ahead.
func past(pod *corev1.Pod, s *State, from, now time.Time) []Event {
	if pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
		return nil
	}
	held, err := assignment.Held(pod)
	if err != nil {
		return nil
	}
	var events []Event
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		end := c.State.Terminated
		if end == nil || end.FinishedAt.Time.Before(from) || end.StartedAt.IsZero() {
			continue
		}
		for _, g := range held[c.Name] {
			d := s.Devices[g.Slot.Instance]
			d.Name = g.Slot.Instance
			t := Taken{Index: g.Slot.Index, Pod: pod.Namespace + "/" + pod.Name, Container: c.Name,
				Node: pod.Spec.NodeName}
			at := func(of metav1.Time) int64 { return min(max(of.UnixMilli(), from.UnixMilli()), now.UnixMilli()) }
			events = append(events, eventOf(&d, &t, SlotHeld, at(end.StartedAt)),
				eventOf(&d, &t, SlotReleased, at(end.FinishedAt)))
		}
	}
	return events
}

// pastPoints counts back from the state through the events before it. A point says how
// it was from its time on, until the next.
func pastPoints(events []Event, s *State, from, now time.Time) []Point {
	p := count(s)
	points := []Point{at(p, now)}
	add := func(p Point) { // of two points at one time the later holds
		if points[len(points)-1].Time != p.Time {
			points = append(points, p)
		}
	}
	for i := len(events) - 1; i >= 0; i-- {
		e := &events[i]
		add(at(p, time.UnixMilli(e.Time)))
		switch e.Kind {
		case SlotHeld:
			p.Held--
		case SlotAssigned, SlotMissing:
			p.Assigned--
		case SlotReleased:
			p.Held++
		case PodWaits:
			p.Waiting--
		}
		p.Held, p.Assigned, p.Waiting = max(p.Held, 0), max(p.Assigned, 0), max(p.Waiting, 0)
	}
	add(at(p, from))
	slices.Reverse(points)
	return points
}

// at is the counts at the time, which is rounded down to the resolution.
func at(p Point, t time.Time) Point {
	p.Time = t.Truncate(resolution).UnixMilli()
	return p
}

// count counts slots and pods.
func count(s *State) Point {
	var p Point
	for i := range s.Pods {
		if s.Pods[i].waits() {
			p.Waiting++
		}
	}
	for _, d := range s.Devices {
		p.Total += d.Capacity
		for i := range d.Taken {
			if d.Taken[i].State == view.Held {
				p.Held++
			} else {
				p.Assigned++
			}
		}
	}
	return p
}

// Record records how the second state differs from the first. It returns what is new:
// of a great many events the last.
func (h *History) Record(from, to *State, now time.Time) ([]Event, []Point) {
	events := changes(from, to, now.UnixMilli())
	h.events = append(h.events, events...)
	p := at(count(to), now)
	var points []Point
	last := &h.points[len(h.points)-1]
	same := *last
	same.Time = p.Time
	switch {
	case same == p: // a point holds until the next
	case last.Time == p.Time:
		*last, points = p, []Point{p}
	default:
		h.points, points = append(h.points, p), []Point{p}
	}
	h.trim(now)
	return events[max(0, len(events)-sentEvents):], points
}

// trim drops what is older than the window, and the oldest of too much.
func (h *History) trim(now time.Time) {
	from := now.Add(-window).UnixMilli()
	old, _ := slices.BinarySearchFunc(h.events, from, func(e Event, t int64) int { return int(e.Time - t) })
	if excess := len(h.events) - maxEvents; excess > old {
		old = excess
		h.recorded = max(h.recorded, h.events[old].Time)
	}
	h.events = slices.Delete(h.events, 0, old)
	// The last point before the window says how it was when the window began.
	for len(h.points) > 1 && h.points[1].Time <= from {
		h.points = h.points[1:]
	}
}

// changes are the events between two states, ordered by what they are about.
func changes(from, to *State, now int64) []Event {
	var events []Event
	for name, d := range to.Devices {
		before, found := from.Devices[name]
		switch {
		case !found:
			events = append(events, Event{Time: now, Kind: DeviceFound, Device: name, Label: d.called()})
		case before.Reach != "" && d.Reach == "":
			events = append(events, Event{Time: now, Kind: DeviceLost, Device: name, Label: d.called()})
		case before.Reach == "" && d.Reach != "":
			events = append(events, Event{Time: now, Kind: DeviceBack, Device: name, Label: d.called()})
		}
		if !slices.Equal(before.Taken, d.Taken) {
			events = append(events, slotChanges(&before, &d, now)...)
		}
	}
	for name, d := range from.Devices {
		if _, found := to.Devices[name]; !found {
			for i := range d.Taken {
				events = append(events, eventOf(&d, &d.Taken[i], SlotReleased, now))
			}
			events = append(events, Event{Time: now, Kind: DeviceGone, Device: name, Label: d.called()})
		}
	}
	waiting := map[string]bool{}
	for i := range from.Pods {
		if p := &from.Pods[i]; p.waits() {
			waiting[p.Namespace+"/"+p.Name] = true
		}
	}
	for i := range to.Pods {
		p := &to.Pods[i]
		if !p.waits() {
			continue
		}
		name := p.Namespace + "/" + p.Name
		if !waiting[name] {
			events = append(events, Event{Time: now, Kind: PodWaits, Pod: name})
		}
		delete(waiting, name)
	}
	for name := range waiting {
		events = append(events, Event{Time: now, Kind: PodGone, Pod: name})
	}
	if len(waiting) > 0 {
		placed(events, waiting, to)
	}
	slices.SortStableFunc(events, func(a, b Event) int { return strings.Compare(key(&a), key(&b)) })
	return events
}

// placed corrects the events of those pods that wait no longer because they have slots.
func placed(events []Event, pods map[string]bool, s *State) {
	has := map[string]bool{}
	for _, d := range s.Devices {
		for i := range d.Taken {
			if pods[d.Taken[i].Pod] {
				has[d.Taken[i].Pod] = true
			}
		}
	}
	for i := range events {
		if e := &events[i]; e.Kind == PodGone && has[e.Pod] {
			e.Kind = PodPlaced
		}
	}
}

func key(e *Event) string { return e.Device + "/" + strconv.Itoa(e.Slot) + "/" + e.Pod }

// slotChanges are the events between two states of a device.
func slotChanges(from, to *Device, now int64) []Event {
	var events []Event
	before := map[int]*Taken{}
	for i := range from.Taken {
		before[from.Taken[i].Index] = &from.Taken[i]
	}
	for i := range to.Taken {
		t := &to.Taken[i]
		b := before[t.Index]
		delete(before, t.Index)
		if b != nil && b.Pod == t.Pod && b.Node == t.Node && b.State == t.State {
			continue
		}
		if b != nil && (b.Pod != t.Pod || b.Node != t.Node) {
			events = append(events, eventOf(from, b, SlotReleased, now))
		}
		events = append(events, eventOf(to, t, EventKind(t.State), now))
	}
	for _, b := range before {
		events = append(events, eventOf(from, b, SlotReleased, now))
	}
	return events
}

// Span is a time that a slot was taken.
type Span struct {
	Slot  int        `json:"slot"`
	From  int64      `json:"from"`         // milliseconds since 1970
	To    int64      `json:"to,omitempty"` // 0 while it lasts
	State view.State `json:"state"`
	Pod   string     `json:"pod,omitempty"`
}

// Spans returns when the device's slots were taken, from what is left of the last hour,
// by slot and time.
func (h *History) Spans(d *Device, now time.Time) []Span {
	begin := now.Add(-window).UnixMilli()
	open := map[int]*Span{}
	spans := []Span{}
	end := func(slot int, at int64) {
		if s := open[slot]; s != nil {
			s.To = at
			spans = append(spans, *s)
			delete(open, slot)
		}
	}
	for i := range h.events {
		e := &h.events[i]
		if e.Device != d.Name || e.Pod == "" && e.Node == "" {
			continue
		}
		switch e.Kind {
		case SlotAssigned, SlotHeld, SlotMissing:
			end(e.Slot, e.Time)
			open[e.Slot] = &Span{Slot: e.Slot, From: e.Time, State: view.State(e.Kind), Pod: e.Pod}
		case SlotReleased:
			if open[e.Slot] == nil { // it was taken before the hour began
				open[e.Slot] = &Span{Slot: e.Slot, From: begin, State: view.Held, Pod: e.Pod}
			}
			end(e.Slot, e.Time)
		}
	}
	for _, t := range d.Taken {
		s := open[t.Index]
		if s == nil {
			s = &Span{Slot: t.Index, From: max(t.Since*1000, begin), State: t.State, Pod: t.Pod}
		}
		spans = append(spans, *s)
		delete(open, t.Index)
	}
	slices.SortStableFunc(spans, func(a, b Span) int {
		if a.Slot != b.Slot {
			return a.Slot - b.Slot
		}
		return int(a.From - b.From)
	})
	return spans
}

// last are the newest events.
func (h *History) last() []Event {
	return slices.Clone(h.events[max(0, len(h.events)-sentEvents):])
}
