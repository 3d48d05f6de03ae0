package ledger

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/slot"
)

// prober has pods that wait, and checks for TestHistories that the ledger says of each
// change after which one of them can run, or can preempt, that it may help that pod.
type prober struct {
	*Ledger
	event   Event
	excused bool // all pods are tried
	waiting []*probe
}

// probe is a pod that waits on a node.
type probe struct {
	req  *Request
	node string
	can  bool // run or preempt, as of the last look
}

func newProber(t *rapid.T) *prober {
	p := &prober{Ledger: New(), excused: true}
	for i := range 4 {
		pod := Pod{UID: fmt.Sprint("probe", i), Name: fmt.Sprint("probe", i), Priority: int32(i)}
		req := &Request{Pod: pod, Containers: []ContainerRequest{{Name: "main", Resources: []ResourceRequest{{Name: "cam", Count: 1}}}}}
		if i%2 == 0 {
			req = drawRequest(t, pod)
		}
		for _, node := range worldNodes {
			p.waiting = append(p.waiting, &probe{req: req, node: node})
		}
	}
	return p
}

// restart has another ledger, after which all pods are tried.
func (p *prober) restart(l *Ledger) { p.Ledger, p.excused = l, true }

// check looks whether the waiting pods can run, and what they were told since. It does
// not count on pods that are being deleted: their end will be an event.
func (p *prober) check(t *rapid.T, strategy Strategy) {
	ending := p.terminating
	defer func() { p.terminating = ending }()
	p.terminating = nil
	for _, w := range p.waiting {
		victims, could := p.PotentialVictims(w.req), w.can
		found := p.Preempt(strategy, w.node, w.req, victims.On(w.node))
		if found != nil && !slices.Equal(victims.Nodes([]string{w.node}), []string{w.node}) {
			t.Fatalf("pod %s, which asks for %+v, can have %v on %s if %v go, and counts say that this does not suffice",
				w.req.UID, w.req.Containers, found.Assignment, w.node, found.Victims)
		}
		if w.can = found != nil; w.can && !could && !p.excused && !p.helps(w.req) {
			t.Fatalf("pod %s of priority %d, which asks for %+v, can have %v on %s now, if %v go; it is told only of %+v",
				w.req.UID, w.req.Priority, w.req.Containers, found.Assignment, w.node, found.Victims, p.event)
		}
	}
	p.event, p.excused = Event{}, false
}

// helps reports whether what happened may help the pod.
func (p *prober) helps(req *Request) bool {
	asks := map[string]bool{}
	for _, c := range req.Containers {
		for _, r := range c.Resources {
			asks[r.Name] = true
		}
	}
	return slices.ContainsFunc(p.event.Freed, func(name string) bool { return asks[name] }) ||
		slices.ContainsFunc(p.event.Preemptible, func(s slot.Name) bool {
			least, ok := p.MinPreemptorPriority(s)
			return ok && req.Priority >= least && slices.ContainsFunc(p.Resources(s.Instance), func(name string) bool { return asks[name] })
		})
}

// TestEventHasADeviceOnce: whoever follows an event looks at all slots of its devices, and a pod may give back
// a thousand of one.
func TestEventHasADeviceOnce(t *testing.T) {
	const slots = 1_000
	l := ledgerOf(akriv0.ConfigurationSpec{Capacity: slots, UniqueDevices: new(false)})
	share(l, "cam-1", "a")
	req := podFor(1, slots)
	a, shortfall := l.Draft(Spread, req.Pod).Fit("a", req)
	if shortfall != nil {
		t.Fatal(shortfall)
	}
	l.Observe(req.Pod, "a", a)
	if got, want := l.Remove(req.UID).Freed, []string{"cam", full("cam-1")}; !slices.Equal(got, want) {
		t.Errorf("%d names are freed, want %v", len(got), want)
	}
}
