package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubeslot/kubeslot/types/client/restored"
)

// takes reports whether new slots are taken.
func takes(t *testing.T, a *afterRestore) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	err := a.over(ctx)
	if err != nil && !strings.Contains(err.Error(), "restored from a backup") {
		t.Errorf("%q does not say why no slots are taken", err)
	}
	return err == nil
}

// The process after one that has noticed a restore takes no new slots for a while; others do at once.
func TestSlotsAfterARestore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		first := readRestore(t.Context(), dir)
		if !takes(t, first) {
			t.Fatal("no slots are taken, though nothing was noticed")
		}
		if err := first.noteRestore(); err != nil {
			t.Fatal(err)
		}
		next := readRestore(t.Context(), dir)
		time.Sleep(restored.ObjectionTime / 2)
		again := readRestore(t.Context(), dir) // next was killed meanwhile
		if takes(t, next) || takes(t, again) {
			t.Error("slots are taken at once")
		}
		time.Sleep(restored.ObjectionTime)
		synctest.Wait()
		if !takes(t, next) || !takes(t, again) || !takes(t, readRestore(t.Context(), dir)) {
			t.Errorf("no slots are taken after %v", restored.ObjectionTime)
		}
		if err := readRestore(t.Context(), filepath.Join(dir, "none")).noteRestore(); err == nil || !strings.Contains(err.Error(), "restored") {
			t.Errorf("%v, want why it cannot be noted", err)
		}
	})
}

// A process that is started while a backup is restored has seen nothing of before. The former one has kept
// what it saw, and slots are taken only when the API server's data are known not to be older.
func TestRestoreWhileNoProcessRan(t *testing.T) {
	for name, test := range map[string]struct {
		kept, current string
		waits         bool
	}{
		"nothing was restored":           {"90", "95", false},
		"a backup from before":           {"90", "70", true},
		"a backup with bumped versions":  {"90", "1000000070", true},
		"the first process of the node":  {"", "70", false},
		"a file that was half written":   {"9x", "70", false},
		"nothing has been written since": {"90", "90", false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				if err := os.WriteFile(filepath.Join(dir, seenFile), []byte(test.kept), 0o600); err != nil {
					t.Fatal(err)
				}
				a, asked := readRestore(t.Context(), dir), 0
				if takes(t, a) != (test.kept == "") {
					t.Error("slots are taken before the API server has answered, or not where there is nothing to compare")
				}
				ctx, end := context.WithCancel(t.Context())
				go a.follow(ctx, func(context.Context) (string, error) {
					if asked++; asked == 1 {
						return "", errors.New("away")
					}
					return test.current, nil
				}, func() string { return test.current })
				time.Sleep(compareEvery + time.Second)
				if takes(t, a) == test.waits {
					t.Errorf("slots are taken: %v", !test.waits)
				}
				if _, err := os.Stat(filepath.Join(dir, restoredFile)); (err == nil) != test.waits {
					t.Errorf("what the next process is told: %v", err)
				}
				time.Sleep(restored.ObjectionTime)
				if !takes(t, a) {
					t.Errorf("no slots are taken after %v", restored.ObjectionTime)
				}
				time.Sleep(seenEvery)
				if got, _ := os.ReadFile(filepath.Join(dir, seenFile)); string(got) != test.current {
					t.Errorf("kept %q, want %q", got, test.current)
				}
				end()
				synctest.Wait()
			})
		})
	}
}
