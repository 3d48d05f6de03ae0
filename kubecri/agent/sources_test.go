package agent

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubeslot/kubeslot/discovery"
)

// at is a source of the handler's name at an endpoint.
func at(endpoint string, h discovery.Handler) *discovery.Source {
	return discovery.NewSource(h, endpoint)
}

func TestSeveralSourcesAreAUnion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, builtIn, a, b := newAPI(configuration("cam")), seeing("foo0"), seeing("foo0", "foo1"), seeing("foo2")
		agent := api.start(t, "node-a", builtIn)
		agent.Add(at("/a.sock", a))
		agent.Add(at("/b.sock", b))
		api.want(t, "node-a-0: foo0 foo1 foo2")
		a.see("foo0") // one that lives: what it no longer reports is gone
		api.want(t, "node-a-0: foo0 foo2")
		a.see("foo0", "foo1")
		api.want(t, "node-a-0: foo0 foo1 foo2")

		// One's failure does not touch the others.
		a.change(func() { a.fail = func(int) error { return errors.New("stream broke") } })
		agent.wantEvents(t) // perhaps it starts again
		pass(3 * time.Second)
		agent.wantEvents(t, `Warning DiscoveryFailed Node node-a: discovery handler "echoes": stream broke`)
		pass(30 * time.Second)
		api.wantNow(t, "node-a-0: foo0 foo1? foo2 !DiscoveryFailed")
		if b.ran() != 1 || builtIn.ran() != 1 {
			t.Errorf("the others ran %d and %d times", b.ran(), builtIn.ran())
		}
		pass(5 * time.Minute)
		api.wantNow(t, "node-a-0: foo0 foo2 !DiscoveryFailed")
		agent.wantEvents(t, "Warning DevicesLost Node node-a no longer reports 1 devices: discovery handler echoes@/a.sock has not worked since they were reported last")

		// A source that is removed takes its problem along, and its devices after a while.
		agent.Remove("echoes@/a.sock")
		agent.Remove("echoes@/b.sock")
		api.want(t, "node-a-0: foo0 foo2")
		pass(30 * time.Second)
		api.wantNow(t, "node-a-0: foo0 foo2?")
		agent.Add(at("/b.sock", seeing("foo2")))
		api.want(t, "node-a-0: foo0 foo2")
		agent.Remove("echoes@/b.sock")
		pass(5 * time.Minute)
		api.wantNow(t, "node-a-0: foo0")
	})
}

// A second handler of a name takes nothing over: what both report is as the first one says, the
// built-in one or else the first by endpoint, however often the second changes its mind. It can
// only add devices, and has its own written at most about once a second.
func TestASecondHandlerOfAName(t *testing.T) {
	for name, firstAt := range map[string]string{"built in": "", "by endpoint": "/a.sock"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api, first, second := newAPI(configuration("cam")), seeing("foo0"), silent()
				var builtIn []discovery.Handler
				if firstAt == "" {
					builtIn = append(builtIn, first)
				}
				agent := api.start(t, "node-a", builtIn...)
				second.report(true, "foo0")
				if firstAt != "" {
					agent.Add(at("/b.sock", second)) // it may be there before
					agent.Add(at(firstAt, first))
				} else {
					agent.Add(at("/0.sock", second))
				}
				api.want(t, "node-a-0: foo0")
				pass(time.Minute)
				api.called()
				says := func(value string, ids ...string) {
					result := &discovery.Result{Shared: true}
					for _, id := range ids {
						result.Devices = append(result.Devices, discovery.Device{ID: id, Properties: map[string]string{"ID": value}})
					}
					second.change(func() { second.result = result })
				}
				for i := range 100 { // in ten seconds
					says(fmt.Sprint(i), "foo0")
					pass(50 * time.Millisecond)
					says("none")
					pass(50 * time.Millisecond)
				}
				api.wantCalls(t) // nothing is written
				writes := 0
				for i := range 100 {
					says(fmt.Sprint(i), "foo0", "foo1")
					pass(100 * time.Millisecond)
					writes += len(api.called())
				}
				if writes < 6 || writes > 10 {
					t.Errorf("%d writes of the second's own device in ten seconds, want fewer than one a second",
						writes)
				}
				api.want(t, "node-a-0: foo0 foo1")
				if got := api.slices(t)[0].Spec.Devices[0]; got.ID != "foo0" || got.Properties["ID"] != "foo0" {
					t.Errorf("%+v, want foo0 as the first handler says", got)
				}
				says("none")
				api.want(t, "node-a-0: foo0")
			})
		})
	}
}

// A handler that is killed and comes back registers again, and is not waited for as long
// as one that fails again and again.
func TestARegistrationEndsTheWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, handler := newAPI(configuration("cam")), seeing("foo0")
		agent, source := api.start(t, "node-a"), at("/a.sock", handler)
		agent.Add(source)
		api.want(t, "node-a-0: foo0")
		handler.change(func() { handler.fail = func(int) error { return errors.New("gone") } })
		pass(4 * time.Minute) // it tries once a minute now
		handler.change(func() { handler.fail = nil })
		handler.see("foo0", "foo1")
		runs := handler.ran()
		agent.Add(at("/a.sock", handler)) // which is another value, as of a registration
		synctest.Wait()
		if handler.ran() != runs+1 {
			t.Errorf("ran %d times after it had registered", handler.ran()-runs)
		}
		// When it fails now, it is not as if it had failed all along.
		handler.change(func() {
			handler.fail = func(int) error {
				handler.fail = nil
				return errors.New("once")
			}
		})
		pass(3 * time.Second)
		if handler.ran() != runs+2 {
			t.Errorf("ran %d times after it had failed once", handler.ran()-runs-1)
		}
		runs++

		pass(2 * time.Minute)
		api.wantNow(t, "node-a-0: foo0 foo1")

		// While it works a registration changes nothing.
		api.called()
		for range 100 {
			agent.Add(at("/a.sock", handler))
			pass(time.Second)
		}
		if handler.ran() != runs+1 {
			t.Errorf("ran %d times more", handler.ran()-runs-1)
		}
		api.wantCalls(t)
	})
}

// A process that is replaced by its next version is no event at all.
func TestARestartOfAHandlerWritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, handler := newAPI(configuration("cam")), seeing("foo0")
		agent := api.start(t, "node-a")
		agent.Add(at("/a.sock", handler))
		api.want(t, "node-a-0: foo0")
		api.called()
		for range 10 {
			handler.change(func() { handler.fail = func(int) error { return errors.New("stream broke") } })
			pass(1500 * time.Millisecond)
			handler.change(func() { handler.fail = nil })
			agent.Add(at("/a.sock", handler))
			pass(10 * time.Second)
		}
		api.wantCalls(t)
		agent.wantEvents(t)
		if n := handler.ran(); n < 11 {
			t.Errorf("ran %d times", n)
		}
	})
}

// A process that registers again after each failure, as the protocol asks, is reported, once.
// Of a handler that has not registered again yet, nothing is taken away after a restart.
func TestARestartWaitsForEndpoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI(configuration("cam"))
		first := api.start(t, "node-a")
		first.Add(at("/a.sock", seeing("foo0")))
		first.Add(at("/b.sock", seeing("foo1")))
		api.want(t, "node-a-0: foo0 foo1")
		first.stop()
		api.called()
		second := api.start(t, "node-a")
		pass(9 * time.Second)
		second.Add(at("/a.sock", seeing("foo0")))
		pass(10 * time.Second)
		second.Add(at("/b.sock", seeing("foo1")))
		pass(10 * time.Minute)
		api.wantCalls(t)
		second.wantEvents(t)
		api.wantNow(t, "node-a-0: foo0 foo1")
		second.stop()

		third := api.start(t, "node-a")
		third.Add(at("/a.sock", seeing("foo0"))) // the other does not come back
		pass(29 * time.Second)
		api.wantNow(t, "node-a-0: foo0 foo1")
		pass(3 * time.Second)
		api.wantNow(t, "node-a-0: foo0")
		third.wantNotified(t, "cam-a19705 DeviceGone") // foo1
	})
}

// That a handler is also built in does not take away what an endpoint of its name has.
func TestARestartWaitsForEndpointsOfABuiltInHandlersName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI(configuration("cam"))
		first := api.start(t, "node-a", seeing("foo0"))
		first.Add(at("/a.sock", seeing("foo1")))
		api.want(t, "node-a-0: foo0 foo1")
		first.stop()
		api.called()
		second := api.start(t, "node-a", seeing("foo0"))
		pass(20 * time.Second)
		second.Add(at("/a.sock", seeing("foo1")))
		pass(time.Minute)
		api.wantCalls(t)
		second.wantNotified(t)
		second.stop()

		// Where none can register, none is waited for.
		api.noEndpoints = true
		api.start(t, "node-a", seeing("foo0"))
		api.want(t, "node-a-0: foo0")
	})
}

// A process that reports and then ends its stream at once, again and again, does not work.
// ends reports what the handler sees, and ends.
// Without their handler devices that a former life of the agent reported do not stay for
// ever.
func TestDevicesWithoutAHandlerGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI(configuration("cam"), configuration("mic"))
		first := api.start(t, "node-a", seeing("foo0"))
		api.want(t, "node-a-0: foo0 foo0")
		first.stop()
		second := api.start(t, "node-a")
		pass(29 * time.Second)
		api.wantNow(t, "node-a-0: foo0 foo0")
		pass(3 * time.Second)
		api.wantNow(t, "node-a-0: foo0? foo0? !UnknownHandler !UnknownHandler")
		if second.Gone("cam-8120fe") {
			t.Error("the device is gone early")
		}
		pass(5 * time.Minute)
		api.wantNow(t, "node-a-0: !UnknownHandler !UnknownHandler")
		if !second.Gone("cam-8120fe") {
			t.Error("the device is not gone")
		}
		unknown := `Warning UnknownHandler Node node-a: no discovery handler "echoes" on this node: run it there, and discovery starts. ` + itsNameStays
		lost := `Warning DevicesLost Node node-a no longer reports 1 devices: no discovery handler "echoes" has reported them since discovery began`
		second.wantEvents(t, unknown, unknown, lost, lost)
		second.wantNotified(t, "cam-8120fe DeviceGone", "mic-8120fe DeviceGone")
	})
}

// Bad details are not tried again until something is another.
func TestBadDetailsAreTriedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := configuration("cam")
		api, handler := newAPI(c), silent()
		handler.fail = func(int) error {
			time.Sleep(100 * time.Millisecond) // as it is far away
			return discovery.Invalidf("discoveryDetails of echoes: oops")
		}
		agent := api.start(t, "node-a", handler)
		agent.wantEvents(t, `Warning InvalidDiscoveryDetails Node node-a: discovery handler "echoes": discoveryDetails of echoes: oops`)
		pass(time.Hour)
		api.wantNow(t, "node-a-0: !InvalidDiscoveryDetails")
		if handler.ran() != 1 {
			t.Errorf("tried %d times", handler.ran())
		}
		api.called()
		for range 100 { // a handler that registers again and again does not have the same written again
			agent.Add(at(discovery.BuiltInEndpoint, handler))
			pass(time.Second)
		}
		api.wantCalls(t)
		agent.wantEvents(t)
		if handler.ran() != 101 {
			t.Errorf("tried %d times, want once a registration", handler.ran())
		}
		handler.change(func() { handler.fail = nil })
		handler.see("foo0")
		c = c.DeepCopy()
		c.Spec.DiscoveryHandler.DiscoveryDetails = "right"
		api.configure(t, c)
		api.want(t, "node-a-0: foo0")
	})
}

// warner warns, and otherwise is the handler.
type warner struct {
	*echoes
	warnings []string
}

func (w *warner) Discover(ctx context.Context, request discovery.Request, report func(discovery.Result)) error {
	for _, message := range w.warnings {
		request.Warnf("%s", message)
	}
	return w.echoes.Discover(ctx, request, report)
}

func TestWarningsAreEventsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, handler := newAPI(configuration("cam")), seeing("foo0")
		agent := api.start(t, "node-a", &warner{handler, []string{"unknown key x", "unknown key x", "unknown key y"}})
		want := []string{"Warning DiscoveryWarning Node node-a: unknown key x", "Warning DiscoveryWarning Node node-a: unknown key y"}
		agent.wantEvents(t, want...)
		handler.change(func() {
			handler.fail = func(run int) error {
				if run == 1 {
					return errors.New("once")
				}
				handler.fail = nil
				return errors.New("twice")
			}
		})
		pass(time.Minute)
		agent.wantEvents(t, `Warning DiscoveryFailed Node node-a: discovery handler "echoes": once`, `Warning DiscoveryFailed Node node-a: discovery handler "echoes": twice`)
		api.want(t, "node-a-0: foo0")
	})
}

func TestAFloodOfWarningsEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all []string
		for i := range 10_000 {
			all = append(all, fmt.Sprint("warning ", i))
		}
		agent := newAPI(configuration("cam")).start(t, "node-a", &warner{seeing(), all})
		pass(time.Second)
		if n := len(agent.events.Events); n != maxWarnings {
			t.Errorf("%d Events, want %d", n, maxWarnings)
		}
	})
}
