package replacefile

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

// put makes a file with a mode that the umask has no say in.
func put(t *testing.T, path, content string, mode fs.FileMode) {
	t.Helper()
	if err := errors.Join(os.WriteFile(path, []byte(content), mode), os.Chmod(path, mode)); err != nil {
		t.Fatal(err)
	}
}

// expect compares the file at path, and that nothing else is beside it.
func expect(t *testing.T, path, content string, mode fs.FileMode) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || string(data) != content || info.Mode() != mode {
		t.Errorf("%s has %q with mode %v, %v; want %q with %v", path, data, info.Mode(), err, content, mode)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// A file is on the disk before it gets its name, and its name is before the call returns.
func TestOrderOfCalls(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	put(t, path, "before", 0o600)
	var calls []string
	d := Disk{Observe: func(call, path string) {
		now, err := os.ReadFile(filepath.Join(dir, "file"))
		calls = append(calls, call+" "+strings.TrimPrefix(path, dir)+", which makes it "+string(now))
		if err != nil {
			t.Error(err)
		}
	}}
	for name, write := range map[string]func() error{
		"Write": func() error { return d.Write(path, []byte("Write"), 0o600) },
		"Copy":  func() error { return d.Copy(path, strings.NewReader("Copy"), 0o600) },
		"Edit":  func() error { return d.Edit(path, []byte("Edit"), 0o600) },
	} {
		calls = nil
		put(t, path, "before", 0o600)
		if err := write(); err != nil {
			t.Fatal(err)
		}
		want := []string{
			"sync /.file.tmp, which makes it before", "rename /file, which makes it " + name,
			"sync , which makes it " + name,
		}
		if diff := cmp.Diff(want, calls); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestModes(t *testing.T) {
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	path := filepath.Join(t.TempDir(), "file")
	steps := []struct {
		name  string
		write func(path string, content []byte, mode fs.FileMode) error
		mode  fs.FileMode
		want  fs.FileMode
	}{
		{"Edit of a new file", Disk{}.Edit, 0o644, 0o644},
		{"Write", Disk{}.Write, 0o750, 0o750},
		{"Edit of one that is there", Disk{}.Edit, 0o644, 0o750},
		{"Write again", Disk{}.Write, 0o600, 0o600},
	}
	for _, s := range steps {
		// As a process that was killed leaves it.
		put(t, filepath.Join(filepath.Dir(path), ".file.tmp"), "half", 0o777)
		if err := s.write(path, []byte(s.name), s.mode); err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		expect(t, path, s.name, s.want)
	}
}

func TestEditKeepsOwnerAndLink(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, for a file of another user: sudo go test")
	}
	dir := t.TempDir()
	path, link := filepath.Join(dir, "file"), filepath.Join(t.TempDir(), "link")
	put(t, path, "before", 0o640)
	if err := errors.Join(os.Chown(path, 1234, 5678), os.Symlink(path, link)); err != nil {
		t.Fatal(err)
	}
	if err := (Disk{}).Edit(link, []byte("after"), 0o600); err != nil {
		t.Fatal(err)
	}
	expect(t, path, "after", 0o640)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if owner := info.Sys().(*syscall.Stat_t); owner.Uid != 1234 || owner.Gid != 5678 {
		t.Errorf("the owner is %d:%d, want 1234:5678", owner.Uid, owner.Gid)
	}
	if target, err := os.Readlink(link); err != nil || target != path {
		t.Errorf("the link leads to %q, %v", target, err)
	}
}

func TestAFailureLeavesTheFormerFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	put(t, path, "before", 0o600)
	broken := io.MultiReader(strings.NewReader("half"), iotest.ErrReader(io.ErrUnexpectedEOF))
	if err := (Disk{}).Copy(path, broken, 0o755); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("Copy() = %v, want the reader's error", err)
	}
	expect(t, path, "before", 0o600)
	if err := os.MkdirAll(filepath.Join(filepath.Dir(path), ".file.tmp/in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := (Disk{}).Write(path, []byte("after"), 0o600); err == nil {
		t.Error("Write() = nil, although no temporary file can be made")
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "before" {
		t.Errorf("the file has %q, %v", data, err)
	}
}

// A new directory is in the one above it, on the disk, before the next is made in it.
func TestMakeDirectory(t *testing.T) {
	top := t.TempDir()
	var calls []string
	d := Disk{Observe: func(call, path string) { calls = append(calls, call+" "+strings.TrimPrefix(path, top)) }}
	for _, want := range [][]string{{"sync ", "sync /a", "sync /a/b"}, nil} {
		calls = nil
		if err := d.MakeDirectory(filepath.Join(top, "a/b/c"), 0o755); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, calls); diff != "" {
			t.Errorf("calls (-want +got):\n%s", diff)
		}
	}
	put(t, filepath.Join(top, "file"), "", 0o600)
	err := d.MakeDirectory(filepath.Join(top, "file/a"), 0o755)
	if !errors.Is(err, syscall.ENOTDIR) && !errors.Is(err, fs.ErrExist) {
		t.Errorf("MakeDirectory() below a file = %v", err)
	}
}
