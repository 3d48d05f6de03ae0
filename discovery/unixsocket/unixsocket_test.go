package unixsocket

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func mustListen(t *testing.T, path string) *Listener {
	t.Helper()
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func dial(t *testing.T, path string) error {
	t.Helper()
	conn, err := net.Dial("unix", path)
	if err == nil {
		conn.Close()
	}
	return err
}

func TestMakesTheSocketForItsUserAlone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "there")
	path := filepath.Join(dir, "x.sock")
	l := mustListen(t, path)
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode() != os.ModeSocket|0o600 {
		t.Errorf("the socket's mode is %v, want a socket of 0600", info.Mode())
	}
	if err := dial(t, path); err != nil {
		t.Errorf("dial: %v", err)
	}
	if err := l.Present(); err != nil {
		t.Errorf("Present() = %v", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("the directory has %v (%v), want the socket alone", entries, err)
	}
	l.Remove()
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Lstat() = %v after Remove, want no file", err)
	}
}

func TestWhatIsThereAlready(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.sock")
	first := mustListen(t, path)

	if _, err := Listen(path); !errors.Is(err, ErrServed) {
		t.Errorf("Listen() = %v on a socket that is served, want ErrServed", err)
	}
	if err := first.Present(); err != nil {
		t.Errorf("the first one was disturbed: %v", err)
	}

	first.Close() // as a process that is killed: the file stays
	second := mustListen(t, path)
	if err := dial(t, path); err != nil {
		t.Errorf("dial the socket that replaced a dead one: %v", err)
	}
	if err := first.Present(); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("Present() = %v for the socket that was replaced", err)
	}
	first.Remove()
	if err := second.Present(); err != nil {
		t.Errorf("the late Remove of the first removed the second: %v", err)
	}

	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := second.Present(); err == nil || !strings.Contains(err.Error(), "removed") {
		t.Errorf("Present() = %v for a socket that was removed", err)
	}
}

func TestOtherFilesStay(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file.sock"), filepath.Join(dir, "link.sock")
	if err := os.WriteFile(file, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, "elsewhere"), link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, link} {
		if _, err := Listen(path); err == nil || !strings.Contains(err.Error(), "not a socket") {
			t.Errorf("Listen(%s) = %v, want a refusal", path, err)
		}
	}
	if content, err := os.ReadFile(file); err != nil || string(content) != "kept" {
		t.Errorf("the file is now %q (%v)", content, err)
	}
	if _, err := Listen(filepath.Join(file, "x.sock")); err == nil {
		t.Error("Listen() in a directory that is a file = nil")
	}
}

// The last process ends, and removes its socket, while others wait for its path.
func TestTheSocketOfAProcessThatEndsIsInNobodysWay(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.sock")
	for range 200 {
		ends := mustListen(t, path)
		ends.Close() // as a process that is killed
		var running sync.WaitGroup
		running.Go(ends.Remove)
		for range 3 {
			running.Go(func() {
				l, err := Listen(path)
				switch {
				case err == nil:
					l.Close()
				case !errors.Is(err, ErrServed):
					t.Errorf("Listen() = %v, want a listener or ErrServed", err)
				}
			})
		}
		running.Wait()
	}
}
