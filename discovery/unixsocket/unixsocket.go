// Package unixsocket makes unix sockets that this process's user alone may connect to: the
// agent's and the handlers' in the directory of discovery handlers, and kubecri's for the
// kubelet.
package unixsocket

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// ErrServed is wrapped by Listen's error when another process serves the socket.
var ErrServed = errors.New("another process serves it: stop that, or choose another path")

// Listener listens on a socket that others may remove.
type Listener struct {
	*net.UnixListener
	path string
	own  Identity
}

// Identity tells a file from others that are at its path later; the zero value is that
// of no file. A number alone is given again to the next file at once.
type Identity struct {
	device, number uint64
	made           syscall.Timespec // when it was modified, which sockets never are
}

// Identify returns the identity of the file at path, links not followed.
func Identify(path string) (Identity, error) {
	var stat syscall.Stat_t
	if err := syscall.Lstat(path, &stat); err != nil {
		return Identity{}, &fs.PathError{Op: "lstat", Path: path, Err: err}
	}
	return Identity{device: uint64(stat.Dev), number: stat.Ino, made: stat.Mtim}, nil
}

// Listen makes the socket, with its directory, for this process's user alone (0600). It
// replaces one that a dead process left, but neither one that is served nor a file of
// another type.
func Listen(path string) (*Listener, error) {
	l, err := listen(path)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	return l, nil
}

func listen(path string) (*Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	if err := mayReplace(path); err != nil {
		return nil, err
	}
	// The socket must be closed to others from its first moment. The umask would do
	// that to every file that is made meanwhile, so: in a directory that is closed.
	private, err := os.MkdirTemp(filepath.Dir(path), ".s") // 0700
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(private)
	made := filepath.Join(private, "s") // which is what Close unlinks: never path, which may be another's by then
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: made, Net: "unix"})
	if err != nil {
		return nil, err
	}
	own, err := Identify(made)
	if err := errors.Join(err, os.Chmod(made, 0o600), os.Rename(made, path)); err != nil {
		l.Close()
		return nil, err
	}
	return &Listener{UnixListener: l, path: path, own: own}, nil
}

// mayReplace returns an error when what is at path must stay. It removes nothing: the
// new socket is renamed over a dead one, so that a process which ends and removes its
// own at this moment is in nobody's way.
func mayReplace(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("there is a file that is not a socket (%s): remove it", info.Mode())
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	switch {
	case err == nil:
		conn.Close()
		return ErrServed
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, fs.ErrNotExist):
		return nil
	}
	return fmt.Errorf("cannot tell whether the existing socket is served: %w", err)
}

// Addr implements net.Listener: where clients dial.
func (l *Listener) Addr() net.Addr { return &net.UnixAddr{Name: l.path, Net: "unix"} }

// Present returns an error when those who dial the path do not get here any more.
func (l *Listener) Present() error {
	switch now, err := Identify(l.path); {
	case err != nil:
		return fmt.Errorf("the socket was removed: %w", err)
	case now != l.own:
		return fmt.Errorf("another process took the place of the socket %s", l.path)
	}
	return nil
}

// Remove removes the socket unless its path is another's by now. It does not close the
// listener. Call it before Close: nobody replaces a socket that is served, so that it
// cannot remove another's.
func (l *Listener) Remove() {
	if l.Present() == nil {
		os.Remove(l.path)
	}
}
