package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/discovery/debugecho"
	"github.com/kubeslot/kubeslot/discovery/standalone"
	"github.com/kubeslot/kubeslot/test/await"
)

// text is written by one goroutine and read by another.
type text struct {
	mu      sync.Mutex
	written strings.Builder
}

func (t *text) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.written.Write(p)
}

func (t *text) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.written.String()
}

func TestPrintsWhatAHandlerFinds(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	availability := filepath.Join(dir, "availability.txt")
	running.Go(func() {
		if err := standalone.Serve(ctx, &debugecho.Handler{AvailabilityFile: availability}, standalone.Options{Directory: dir}); err != nil {
			t.Error(err)
		}
	})
	var printed text
	running.Go(func() {
		o := options{directory: dir, handler: debugecho.Name, details: "{descriptions: [foo0], colour: red}", properties: []string{"k=v=w"}}
		if err := run(ctx, o, &printed); err != nil {
			t.Error(err)
		}
	})
	want := func(part string) {
		t.Helper()
		await.That(t, part, func() (bool, string) {
			text := printed.String()
			return strings.Contains(text, part), text
		})
	}
	want("debugEcho@" + dir + "/debugEcho.sock reports 1 devices, shared: true")
	want("- id: foo0\n  properties:\n    DEBUG_ECHO_DESCRIPTION: foo0\n")
	want(`unknown field "colour"`)
	if err := os.WriteFile(availability, []byte("OFFLINE"), 0o600); err != nil {
		t.Fatal(err)
	}
	want("reports 0 devices")
}

// running is a handler that says when it begins and ends.
type running chan string

func (running) Name() string { return "running" }

func (r running) Discover(ctx context.Context, _ discovery.Request, _ func(discovery.Result)) error {
	r <- "begins"
	<-ctx.Done()
	r <- "ends"
	return ctx.Err()
}

// An endpoint that was forgotten is asked no more, or its next registration would have all printed twice.
func TestForgottenEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		registry, handler, ended := discovery.NewRegistry(), make(running, 10), make(chan struct{})
		go func() {
			defer close(ended)
			askAll(ctx, registry, handler.Name(), discovery.Request{}, &printer{output: &text{}})
		}()
		want := func(when string, want ...string) {
			t.Helper()
			synctest.Wait()
			var got []string
			for len(handler) > 0 {
				got = append(got, <-handler)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: %q, want %q", when, got, want)
			}
		}
		source := discovery.NewSource(handler, "/a.sock")
		registry.Add(source)
		want("registered", "begins")
		registry.Remove(source.ID)
		want("forgotten", "ends")
		registry.Add(discovery.NewSource(handler, "/a.sock"))
		want("registered again", "begins")
		cancel()
		<-ended
	})
}

func TestBadOptions(t *testing.T) {
	for want, o := range map[string]options{
		"--handler":  {},
		"name=value": {handler: "x", properties: []string{"novalue"}},
	} {
		if err := run(t.Context(), o, &text{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("run() = %v, want an error with %q", err, want)
		}
	}
}
