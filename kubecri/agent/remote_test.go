package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/discovery/remote"
	"github.com/kubeslot/kubeslot/discovery/standalone"
	"github.com/kubeslot/kubeslot/test/await"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// Shared makes echoes a handler that may run standalone.
func (h *echoes) Shared() bool { return true }

// A handler in another process, over the real protocol, in real time: neither its restart
// nor the agent's takes a device away, and what it no longer sees goes at once.
func TestAStandaloneHandler(t *testing.T) {
	dir, api := t.TempDir(), newAPI(configuration("cam"))
	handler := func(h *echoes) (kill func()) {
		return background(t, func(ctx context.Context) {
			if err := standalone.Serve(ctx, h, standalone.Options{Directory: dir}); err != nil {
				t.Error(err)
			}
		})
	}
	agent := func() (kill func()) {
		a := api.start(t, "node-a")
		server, err := remote.NewServer(remote.Config{Registry: a.Registry, Directory: dir})
		if err != nil {
			t.Fatal(err)
		}
		unserve := background(t, server.Run)
		return func() {
			a.stop()
			unserve()
		}
	}
	killAgent := agent()
	first := seeing("foo0", "foo1")
	killHandler := handler(first)
	awaitDevices(t, api, "foo0 foo1")
	first.see("foo0")
	awaitDevices(t, api, "foo0")
	first.see("foo0", "foo1")
	awaitDevices(t, api, "foo0 foo1")

	constant := holds(t, api, "foo0")
	killHandler()
	killHandler = handler(seeing("foo0", "foo2"))
	awaitDevices(t, api, "foo0 foo2")
	killAgent()
	killAgent = agent()
	handlerBack := seeing("foo0", "foo2", "foo3")
	killHandler()
	killHandler = handler(handlerBack)
	awaitDevices(t, api, "foo0 foo2 foo3")
	constant()
	killHandler()
	killAgent()
}

// background runs f until kill, which waits until it has ended.
func background(t *testing.T, f func(ctx context.Context)) (kill func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(ctx)
	}()
	kill = sync.OnceFunc(func() {
		cancel()
		<-done
	})
	t.Cleanup(kill)
	return kill
}

// holds watches that the device is always there and usable, until stop.
func holds(t *testing.T, api *api, id string) (stop func()) {
	return background(t, func(ctx context.Context) {
		for ctx.Err() == nil {
			ok := false
			for _, s := range api.slices(t) {
				ok = ok || slices.ContainsFunc(s.Spec.Devices, func(d v1alpha1.Device) bool { return d.ID == id && !d.Unschedulable })
			}
			if !ok {
				t.Errorf("%s is not reported, or not usable: %+v", id, api.slices(t))
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	})
}

// awaitDevices waits until the slices have these devices, all usable, and no problem.
func awaitDevices(t *testing.T, api *api, want string) {
	t.Helper()
	await.That(t, "the slices to have "+want, func() (bool, string) {
		var ids []string
		problems := 0
		for _, s := range api.slices(t) {
			for _, d := range s.Spec.Devices {
				ids = append(ids, fmt.Sprint(d.ID, map[bool]string{true: "?"}[d.Unschedulable]))
			}
			problems += len(s.Spec.Problems)
		}
		slices.Sort(ids)
		is := strings.Join(ids, " ")
		return is == want && problems == 0, fmt.Sprintf("%s, %d problems", is, problems)
	})
}

var _ discovery.Sharer = (*echoes)(nil)
