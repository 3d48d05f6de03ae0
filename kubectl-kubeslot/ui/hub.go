package ui

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kubeslot/kubeslot/kubectl-kubeslot/view"
)

// Live are objects that watches keep up to date.
type Live interface {
	// Objects returns them as they are. Nobody changes what it returns.
	Objects() view.Objects
	// Missing names the resources that the user may not list.
	Missing() []string
	// Err says why the objects may be out of date; nil when they are not.
	Err() error
	// Changed receives when one of the above may have changed, some time after it did so
	// that what changes together is told together.
	Changed() <-chan struct{}
}

const (
	// settle is the shortest time between two updates.
	settle = 100 * time.Millisecond
	// share bounds a Hub's CPU: after an update it rests so many times as long as that took.
	share = 4
	// longest bounds how long it rests, and so how late a page is in a huge cluster.
	longest = 5 * time.Second
	// again is how often a Hub looks at what only time changes, such as a claim whose
	// pod has been gone for a minute.
	again = 20 * time.Second
	// kept is how many updates a page may be behind before it is sent everything.
	kept = 64
	// keptBytes bounds the memory of these updates, of which the last is always kept.
	keptBytes = 8 << 20
)

// Hub makes States of objects, and Updates for any number of pages.
type Hub struct {
	live  Live
	clock clock.WithTicker

	mu      sync.Mutex
	seq     uint64
	view    *view.View // of nothing before the first
	state   *State     // nil before the first
	history History
	recent  [][]byte // the updates up to seq, encoded
	all     []byte   // the full update of seq, encoded; nil until somebody asks for it
	next    chan struct{}
	first   chan struct{} // closed when there is a state
}

// NewHub makes a Hub, which works while Run does.
func NewHub(live Live, c clock.WithTicker) *Hub {
	return &Hub{live: live, clock: c, view: view.New(view.Objects{}), next: make(chan struct{}),
		first: make(chan struct{})}
}

// Run works until ctx is done.
func (h *Hub) Run(ctx context.Context) {
	for ctx.Err() == nil {
		began := h.clock.Now()
		h.refresh(ctx)
		select {
		case <-ctx.Done():
		case <-h.clock.After(min(max(settle, share*h.clock.Since(began)), longest)):
		}
		timer := h.clock.NewTimer(again)
		select {
		case <-ctx.Done():
		case <-h.live.Changed():
		case <-timer.C():
		}
		timer.Stop()
	}
}

// refresh makes a State of the objects, and an Update when it differs from the last.
func (h *Hub) refresh(ctx context.Context) {
	now := h.clock.Now()
	objects := h.live.Objects()
	v := view.New(objects)
	state := NewState(v, objects, h.live.Missing(), h.live.Err(), now)

	h.mu.Lock()
	defer h.mu.Unlock()
	h.view = v
	if h.state == nil {
		h.state = &state
		h.history.Begin(&state, objects.Pods, now)
		h.publish(nil)
		close(h.first)
		return
	}
	u, differ := difference(h.state, &state)
	u.Events, u.Points = h.history.Record(h.state, &state, now)
	h.state = &state
	if !differ && len(u.Points) == 0 {
		return
	}
	u.Seq, u.Time, u.Recorded = h.seq+1, now.UnixMilli(), h.history.recorded
	encoded, err := json.Marshal(u)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot encode an update of the page")
		return
	}
	h.publish(encoded)
}

// publish adds an encoded update, nil for the first, and wakes the pages.
func (h *Hub) publish(encoded []byte) {
	h.seq++
	h.all = nil
	h.recent = append(h.recent, encoded)
	size, drop := 0, 0
	for _, update := range h.recent {
		size += len(update)
	}
	for left := len(h.recent); left > 1 && (left > kept || size > keptBytes); left-- {
		size -= len(h.recent[drop])
		drop++
	}
	h.recent = slices.Clone(h.recent[drop:]) // so that what is dropped is freed
	close(h.next)
	h.next = make(chan struct{})
}

// After returns the encoded updates that take a page on from the update of that number,
// with the number of the last: a full one when the page is too far behind, or new, which
// is number 0. When there is none yet, the channel is closed as soon as there is.
func (h *Hub) After(seq uint64) (updates [][]byte, last uint64, next <-chan struct{}, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch behind := h.seq - seq; {
	case h.state == nil, behind == 0:
	case seq != 0 && behind <= uint64(len(h.recent)):
		updates = append(updates, h.recent[len(h.recent)-int(behind):]...)
	default:
		if h.all == nil {
			if h.all, err = h.encodeAll(); err != nil {
				return nil, 0, nil, err
			}
		}
		updates = [][]byte{h.all}
	}
	return updates, h.seq, h.next, nil
}

func (h *Hub) encodeAll() ([]byte, error) {
	u := full(h.state)
	u.Seq, u.Time, u.Recorded = h.seq, h.clock.Now().UnixMilli(), h.history.recorded
	u.Events, u.Points = notNil(h.history.last()), notNil(h.history.points)
	encoded, err := json.Marshal(u)
	if err != nil {
		return nil, fmt.Errorf("encode the state of the page: %w", err)
	}
	return encoded, nil
}

// Ready waits until there is something to say, or ctx is done.
func (h *Hub) Ready(ctx context.Context) {
	select {
	case <-h.first:
	case <-ctx.Done():
	}
}

// Pod returns what there is to say of a pod; false when it is not among those that the
// user may list.
func (h *Hub) Pod(namespace, name string, events []corev1.Event) (view.Pod, bool) {
	return h.current().Pod(namespace, name, events...)
}

// HasPod reports whether Pod knows the pod, at less cost.
func (h *Hub) HasPod(namespace, name string) bool {
	return h.current().HasPod(namespace, name)
}

// Node returns what there is to say of a node.
func (h *Hub) Node(name string) (view.Node, bool) {
	return h.current().Node(name)
}

func (h *Hub) current() *view.View {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.view
}

// Spans returns when the device's slots were taken in the last hour; false when there
// is no such device.
func (h *Hub) Spans(device string) ([]Span, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.state == nil {
		return nil, false
	}
	d, found := h.state.Devices[device]
	if !found {
		return nil, false
	}
	return h.history.Spans(&d, h.clock.Now()), true
}
