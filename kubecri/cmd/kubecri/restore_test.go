package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The process after one that has noticed a restore takes no new slots for a while; others do at once.
func TestSlotsAfterARestore(t *testing.T) {
	dir := t.TempDir()
	first := readRestore(t.Context(), dir)
	if err := first.over(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := first.noteRestore(); err != nil {
		t.Fatal(err)
	}
	next := readRestore(t.Context(), dir)
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := next.over(ctx); err == nil || !strings.Contains(err.Error(), "restored from a backup") {
		t.Errorf("%v, want new slots refused for %v", err, objectionTime)
	}
	next.until = time.Now().Add(10 * time.Millisecond)
	if err := next.over(t.Context()); err != nil {
		t.Error(err)
	}
	if again := readRestore(t.Context(), dir); time.Until(again.until) < objectionTime-time.Second {
		t.Error("a process that is killed meanwhile leaves no note to the next")
	}
	bad := readRestore(t.Context(), filepath.Join(dir, "none"))
	if err := bad.noteRestore(); err == nil || !strings.Contains(err.Error(), "restored") {
		t.Errorf("%v, want why it cannot be noted", err)
	}
	if err := os.Remove(first.file); err != nil {
		t.Error(err)
	}
}
