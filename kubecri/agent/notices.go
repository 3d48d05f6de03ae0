package agent

import (
	"fmt"
	"sync"
	"time"

	"github.com/kubeslot/kubeslot/kubecri/agent/reports"
)

const (
	// noticeInterval is how often at most a kind of notice is given: how fast a handler changes
	// its mind is not ours to choose.
	noticeInterval = time.Minute

	// maxNoticeKinds bounds the kinds of one Configuration that are remembered for noticeInterval. Those of
	// further kinds count as one kind more.
	maxNoticeKinds = 64
)

// noticeKind is what notices are alike in: the Configuration, the source or Instance, if it is about
// one, and the reason.
type noticeKind struct{ configuration, about, reason string }

// notices are log lines and Events. Of each kind the first is given at once and then one each
// noticeInterval, which is the newest and says how many there were. Safe for concurrent use.
type notices struct {
	wake func() // has due called

	mu    sync.Mutex
	kinds map[noticeKind]*held
	of    map[string]int // how many of these are of a Configuration
}

// held are the notices of one kind since the last that was given.
type held struct {
	until  time.Time
	count  int
	newest func(times int)
}

func newNotices(wake func()) *notices {
	return &notices{wake: wake, kinds: map[noticeKind]*held{}, of: map[string]int{}}
}

// add gives the notice now, or has due give it or a newer one of its kind.
func (n *notices) add(kind noticeKind, give func(times int)) {
	n.mu.Lock()
	h := n.kinds[kind]
	if h == nil && n.of[kind.configuration] >= maxNoticeKinds {
		kind = noticeKind{configuration: kind.configuration}
		h = n.kinds[kind]
	}
	if h != nil {
		h.count, h.newest = h.count+1, give
		n.mu.Unlock()
		return
	}
	n.kinds[kind] = &held{until: time.Now().Add(noticeInterval)}
	n.of[kind.configuration]++
	n.mu.Unlock()
	n.wake()
	give(1)
}

// due gives the notices whose time has come. It returns when the next are due, zero for never.
func (n *notices) due() (next time.Time) {
	var give []func()
	n.mu.Lock()
	now := time.Now()
	for kind, h := range n.kinds {
		if !h.until.After(now) {
			if h.count == 0 {
				delete(n.kinds, kind)
				if n.of[kind.configuration]--; n.of[kind.configuration] == 0 {
					delete(n.of, kind.configuration)
				}
				continue
			}
			newest, times := h.newest, h.count
			give = append(give, func() { newest(times) })
			*h = held{until: now.Add(noticeInterval)}
		}
		next = reports.Earlier(next, h.until)
	}
	n.mu.Unlock()
	for _, f := range give {
		f()
	}
	return next
}

// repeated ends the message of an Event of a notice.
func repeated(times int) string {
	if times == 1 {
		return ""
	}
	return fmt.Sprintf(" (%d times within %v)", times, noticeInterval)
}
