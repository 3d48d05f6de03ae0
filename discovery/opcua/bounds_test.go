package opcua

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/test/await"
)

// One URL does not lead to more devices than its share: a node has no room for any number.
func TestServersOfAURLAreBounded(t *testing.T) {
	s := serve(t)
	s.set(func() {
		for i := range maxServers + 10 {
			s.applications = append(s.applications, plc(fmt.Sprintf("opc.tcp://192.0.2.1:%d/", i+1)))
		}
	})
	d := discover(t, &Handler{}, urls(s.url))
	d.await("as many devices as there may be", func() bool {
		return len(d.reports) > 0 && len(d.reports[len(d.reports)-1].Devices) == maxServers
	})
	d.warns(s.url + " names more than 2500 servers")
}

func TestAsksOnlySomeAtATime(t *testing.T) {
	s := serve(t)
	hangUp := make(chan struct{})
	t.Cleanup(func() { close(hangUp) })
	var list []string
	for i := range 3 * asksAtOnce {
		list = append(list, fmt.Sprintf("%s%d", s.url, i))
	}
	s.set(func() { s.behave = func(net.Conn) { <-hangUp } })
	d := discover(t, &Handler{askTimeout: time.Minute}, urls(list...))
	asked := func(want int) {
		t.Helper()
		await.That(t, fmt.Sprintf("%d connections", want), func() (bool, string) {
			var n int
			s.set(func() { n = s.asked })
			if n > want {
				t.Fatalf("%d connections, want %d until one ends", n, want)
			}
			return n == want, fmt.Sprint(n)
		})
	}
	asked(asksAtOnce)
	for i := range 20 { // the others come as these end, one by one
		hangUp <- struct{}{}
		asked(asksAtOnce + i + 1)
	}
	d.end()
}

// Listed URLs that were given up, each of which keeps whoever asks waiting, delay none that answers.
func TestURLsThatAreGivenUpDelayNoOthers(t *testing.T) {
	s, failing := serve(t, plc("opc.tcp://192.0.2.1:4840/")), serve(t)
	list := []string{s.url}
	for i := range 2 * asksAtOnce {
		list = append(list, fmt.Sprintf("%s%d", failing.url, i))
	}
	ended, hanging := make(chan struct{}), 0
	t.Cleanup(func() { close(ended) })
	failing.set(func() { failing.behave = func(net.Conn) {} }) // hangs up
	d := discover(t, &Handler{askTimeout: time.Hour}, urls(list...))
	d.wants("the server that answers", "opc.tcp://192.0.2.1:4840/")
	d.await("the others to be given up", func() bool { return len(d.warned) == 2*asksAtOnce })
	failing.set(func() {
		failing.behave = func(net.Conn) {
			failing.set(func() { hanging++ })
			<-ended
		}
	})
	await.That(t, "as many questions as there may be", func() (all bool) {
		failing.set(func() { all = hanging == asksAtOnce })
		return all
	})
	s.set(func() { s.applications = append(s.applications, plc("opc.tcp://192.0.2.2:4840/")) })
	d.wants("another server", "opc.tcp://192.0.2.1:4840/", "opc.tcp://192.0.2.2:4840/")
}

// A server that names a URL at which it keeps whoever asks waiting does not keep its place among
// those that are asked for long.
func TestARoundEnds(t *testing.T) {
	s := serve(t, plc("opc.tcp://192.0.2.1:4840/"))
	waits := func(ctx context.Context, _ target, _ string) error {
		<-ctx.Done()
		return ctx.Err()
	}
	d := discover(t, &Handler{askTimeout: 2 * time.Second, answers: waits}, urls(s.url))
	d.wants("the server where it was asked", s.url)
	d.warns("opc.tcp://192.0.2.1:4840/", "does not answer")
}

// The memory for long answers is bounded for all servers together: one that would take more has to
// wait, and others are asked meanwhile.
func TestLargeAnswersAreFew(t *testing.T) {
	long, short := serve(t, plc("opc.tcp://192.0.2.1:4840/")), serve(t, plc("opc.tcp://192.0.2.2:4840/"))
	long.set(func() { long.applications[0].ApplicationName.Text = strings.Repeat("x", largeBytes) })
	for range maxLarge {
		large <- struct{}{}
	}
	d := discover(t, &Handler{askTimeout: 500 * time.Millisecond}, urls(long.url, short.url))
	d.wants("the other server", "opc.tcp://192.0.2.2:4840/")
	d.warns("no OPC UA server at "+long.url, "an answer of more than 65536 bytes, of which 8 are read at a time")
	for range maxLarge {
		<-large
	}
	d.wants("both", "opc.tcp://192.0.2.1:4840/", "opc.tcp://192.0.2.2:4840/")
	d.end()
	if len(large) != 0 {
		t.Errorf("%d places are taken after the end", len(large))
	}
}

// What all others see is looked at only when one sees something else than before.
func TestViewsThatSayTheSame(t *testing.T) {
	s := &source{at: mustTarget(t, "opc.tcp://192.0.2.1/")}
	r := &run{sources: map[string]*running{s.at.url: {source: s}}}
	sees := func(ids ...string) found {
		f := found{}
		for _, id := range ids {
			f.devices = append(f.devices, discovery.Device{ID: id, Properties: map[string]string{"A": "b"}})
		}
		return f
	}
	for i, step := range []struct {
		view
		changed bool
	}{
		{view{of: s}, true}, // it has been asked
		{view{of: s}, false},
		{view{of: s, settled: true}, true},
		{view{of: s, settled: true, found: sees("a")}, true},
		{view{of: s, settled: true, found: sees("a")}, false},
		{view{of: s, settled: true, found: sees("a", "b")}, true},
		{view{of: &source{at: s.at}, settled: true}, false}, // of one that was stopped
	} {
		if changed := r.take(t.Context(), step.view); changed != step.changed {
			t.Errorf("view %d: take() = %v", i, changed)
		}
	}
}
