package standalone

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/discovery/debugecho"
	"github.com/kubeslot/kubeslot/discovery/remote"
	"github.com/kubeslot/kubeslot/test/await"
)

// kubecri takes registrations as kubecri does.
func kubecri(t *testing.T, directory string) *discovery.Registry {
	t.Helper()
	registry := discovery.NewRegistry()
	server, err := remote.NewServer(remote.Config{Registry: registry, Directory: directory})
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	running.Go(func() { server.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return registry
}

// source waits for the handler's registration.
func source(t *testing.T, registry *discovery.Registry, name string) *discovery.Source {
	t.Helper()
	for {
		sources, changed := registry.Sources(name)
		if len(sources) > 0 {
			return sources[0]
		}
		await.Next(t, "the registration of "+name, changed)
	}
}

// asked is one Discover of kubecri's.
type asked struct {
	reports  chan discovery.Result
	warnings chan string
	done     chan error
	stop     context.CancelFunc
}

func ask(t *testing.T, s *discovery.Source, details string) *asked {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	a := &asked{reports: make(chan discovery.Result, 10), warnings: make(chan string, 10), done: make(chan error, 1), stop: cancel}
	request := discovery.Request{Details: details, Warn: func(message string) { a.warnings <- message }}
	var running sync.WaitGroup
	running.Go(func() {
		a.done <- s.Handler.Discover(ctx, request, func(result discovery.Result) { a.reports <- result })
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return a
}

// A handler that runs standalone says all that it says in kubecri, over the protocol.
func TestStandaloneIsAsBuiltIn(t *testing.T) {
	dir := t.TempDir()
	availability := filepath.Join(dir, "availability.txt")
	registry := kubecri(t, dir)
	handler := &debugecho.Handler{AvailabilityFile: availability}
	p := startProgram(t, handler, Options{Directory: dir})
	standalone := source(t, registry, debugecho.Name)
	builtIn := discovery.NewSource(handler, discovery.BuiltInEndpoint)

	const details = `{descriptions: [foo0, foo1], shared: false, colour: red,
		mounts: [{containerPath: /c, hostPath: /h, readOnly: true}], deviceSpecs: [{containerPath: /dev/c, hostPath: /dev/null}]}`
	here, there := ask(t, builtIn, details), ask(t, standalone, details)
	same := func(what string) {
		t.Helper()
		want, got := await.Next(t, what+" (built in)", here.reports), await.Next(t, what+" (standalone)", there.reports)
		if want.Devices == nil {
			want.Devices = []discovery.Device{}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-built in +standalone):\n%s", what, diff)
		}
	}
	same("two devices")
	warned := await.Next(t, "a warning", here.warnings)
	if got := await.Next(t, "the warning", there.warnings); warned != got || !strings.Contains(got, "colour") {
		t.Errorf("warns of %q, want %q", got, warned)
	}
	if err := os.WriteFile(availability, []byte("OFFLINE"), 0o600); err != nil {
		t.Fatal(err)
	}
	same("no devices")

	const bad = "descriptions: red"
	want := await.Next(t, "the refusal", ask(t, builtIn, bad).done)
	got := await.Next(t, "the refusal", ask(t, standalone, bad).done)
	if !errors.Is(got, discovery.ErrInvalid) || !strings.Contains(got.Error(), want.Error()) {
		t.Errorf("refuses bad details with %v, want %v", got, want)
	}

	// Killed and started again.
	renewed := standalone.Renewed()
	p.stop()
	await.Next(t, "the end of the program", p.ended)
	if err := await.Next(t, "the end of the stream", there.done); err == nil {
		t.Error("Discover() = nil after the handler's end")
	}
	startProgram(t, handler, Options{Directory: dir})
	await.Next(t, "the registration that ends kubecri's backoff", renewed)
	if got := source(t, registry, debugecho.Name); got != standalone {
		t.Error("the source is another one: the devices that were known are lost with it")
	}
	there = ask(t, standalone, details)
	if got := await.Next(t, "the devices", there.reports); len(got.Devices) != 0 {
		t.Errorf("reported %+v while offline", got)
	}
}
