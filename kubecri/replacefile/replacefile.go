// Package replacefile replaces files whole: a reader finds the former content or the new
// one, also after the process was killed or the machine lost power in between.
package replacefile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Disk replaces files; its zero value is ready for use. Safe for concurrent use, but for
// one writer of a file at a time.
type Disk struct {
	// Observe, if set, is called after each call whose order counts: "sync" and "rename",
	// with the path of the file or directory.
	Observe func(call, path string)
}

// Write is Disk's.
func Write(path string, content []byte, mode fs.FileMode) error {
	return Disk{}.Write(path, content, mode)
}

// Write makes content that of the file at path, whose directory exists, and mode its
// permissions, whatever the umask. When it returns nil, all of it is on the disk.
func (d Disk) Write(path string, content []byte, mode fs.FileMode) error {
	return d.Copy(path, bytes.NewReader(content), mode)
}

// Copy is Write with what a reader has.
func (d Disk) Copy(path string, content io.Reader, mode fs.FileMode) error {
	return d.replace(path, content, func(f *os.File) error { return f.Chmod(mode) })
}

// Edit is Write that keeps permissions and owner of a file that is there; mode is for a
// new one. A symbolic link stays, and the file that it leads to is replaced.
func (d Disk) Edit(path string, content []byte, mode fs.FileMode) error {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return d.Write(path, content, mode)
	}
	if err != nil {
		return err
	}
	return d.replace(path, bytes.NewReader(content), func(f *os.File) error {
		owner, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return fmt.Errorf("%s has no owner", path)
		}
		return errors.Join(f.Chown(int(owner.Uid), int(owner.Gid)), f.Chmod(info.Mode().Perm()))
	})
}

// MakeDirectory makes a directory and those above it that are not there. When it returns nil, they are on
// the disk.
func (d Disk) MakeDirectory(path string, mode fs.FileMode) error {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return nil
	}
	if err := d.MakeDirectory(filepath.Dir(path), mode); err != nil {
		return err
	}
	if err := os.Mkdir(path, mode); err != nil {
		return err
	}
	return d.syncDirectory(filepath.Dir(path))
}

// Rename puts one file in the place of another of the same directory. Its content is on
// the disk already.
func (d Disk) Rename(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	d.observe("rename", to)
	return d.syncDirectory(filepath.Dir(to))
}

func (d Disk) syncDirectory(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return d.sync(dir)
}

// replace writes a temporary file beside the file, and renames it. Its name is always the
// same, so that nothing piles up when the process is killed here, and begins with a dot,
// so that those who read all files of a directory leave it out.
func (d Disk) replace(path string, content io.Reader, permit func(*os.File) error) error {
	temporary := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".tmp")
	if err := os.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := d.write(temporary, content, permit); err != nil {
		return errors.Join(err, os.Remove(temporary))
	}
	return d.Rename(temporary, path)
}

// write makes a file that is not there. It is closed to others until permit.
func (d Disk) write(path string, content io.Reader, permit func(*os.File) error) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	return errors.Join(err, permit(f), d.sync(f), f.Close())
}

func (d Disk) sync(f *os.File) error {
	if err := f.Sync(); err != nil {
		return err
	}
	d.observe("sync", f.Name())
	return nil
}

func (d Disk) observe(call, path string) {
	if d.Observe != nil {
		d.Observe(call, path)
	}
}
