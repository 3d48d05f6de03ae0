package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kubeslot/kubeslot/discovery/debugecho"
	"github.com/kubeslot/kubeslot/discovery/standalone"
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
		for began := time.Now(); !strings.Contains(printed.String(), part); time.Sleep(10 * time.Millisecond) {
			if time.Since(began) > 30*time.Second {
				t.Fatalf("waited 30 s for %q in:\n%s", part, printed.String())
			}
		}
	}
	want("debugEcho@" + dir + "/debugEcho.sock reports 1 devices, shared: true")
	want("- id: foo0\n  properties:\n    DEBUG_ECHO_DESCRIPTION: foo0\n")
	want(`unknown field "colour"`)
	if err := os.WriteFile(availability, []byte("OFFLINE"), 0o600); err != nil {
		t.Fatal(err)
	}
	want("reports 0 devices")
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
