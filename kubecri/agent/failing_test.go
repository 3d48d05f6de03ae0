package agent

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubeslot/kubeslot/discovery"
)

func TestAHandlerThatRegistersAfterEachFailureIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, handler := newAPI(configuration("cam")), seeing("foo0")
		agent := api.start(t, "node-a")
		agent.Add(at("/a.sock", handler))
		api.want(t, "node-a-0: foo0")
		handler.change(func() { handler.fail = func(int) error { return errors.New("no bus") } })
		for range 90 {
			pass(time.Second)
			agent.Add(at("/a.sock", handler))
		}
		agent.wantEvents(t, `Warning DiscoveryFailed Node node-a: discovery handler "echoes": no bus`)
		for _, s := range api.slices(t) {
			if p := s.Spec.Problems; len(p) != 1 || p[0].Reason != reasonFailed {
				t.Errorf("slice %s has the problems %+v, want %s", s.Name, p, reasonFailed)
			}
		}
		// While it runs for a moment each time the problem is not over.
		for range 10 {
			handler.change(func() { handler.fail = nil })
			agent.Add(at("/a.sock", handler))
			pass(3 * time.Second)
			handler.change(func() { handler.fail = func(int) error { return errors.New("no bus") } })
			pass(500 * time.Millisecond)
		}
		agent.wantEvents(t)
		handler.change(func() { handler.fail = nil })
		pass(3 * time.Minute)
		api.wantNow(t, "node-a-0: foo0")
	})
}

func TestAHandlerWhoseStreamEndsAgainAndAgainIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, handler := newAPI(configuration("cam")), seeing("foo0")
		agent := api.start(t, "node-a")
		agent.Add(at("/a.sock", ends{handler}))
		pass(5 * time.Second)
		api.wantNow(t, "node-a-0: foo0 !DiscoveryFailed")
		agent.wantEvents(t, `Warning DiscoveryFailed Node node-a: discovery handler "echoes": ended, though it should go on`)
		pass(10 * time.Minute)
		// Whether new pods get the device depends on when it was reported last.
		for _, s := range api.slices(t) {
			if p := s.Spec.Problems; len(p) != 1 || p[0].Reason != "DiscoveryFailed" {
				t.Errorf("slice %s has the problems %+v, want DiscoveryFailed", s.Name, p)
			}
		}
		agent.wantEvents(t)
	})
}

type ends struct{ *echoes }

func (e ends) Discover(_ context.Context, _ discovery.Request, report func(discovery.Result)) error {
	e.change(func() { report(*e.result) })
	return nil
}
