package proxy

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

// ErrInUse is wrapped by Listen's error when another process serves the socket.
var ErrInUse = errors.New("another process serves it")

// Listen makes the socket file for the kubelet. Whoever may talk to the runtime
// may talk to us and nobody else: the file takes the owner and mode of the
// runtime's socket, or 0600 when there is none yet, until CopyAccess.
//
// A file that a dead process left is replaced. One that is served is left alone
// (ErrInUse): two shims taking each other's calls would lose claims. A lock on
// `<path>.lock` keeps two starting at once from both finding the file dead; it
// goes with the process, the file stays.
func Listen(path, runtimePath string) (net.Listener, error) {
	l, err := listen(path, runtimePath)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	return l, nil
}

func listen(path, runtimePath string) (net.Listener, error) {
	if path == runtimePath {
		return nil, errors.New("this is the runtime's own endpoint: kubecri needs another")
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	lock, err := lockFile(path + ".lock")
	if err != nil {
		return nil, err
	}
	l, err := bind(path, runtimePath)
	if err != nil {
		lock.Close()
		return nil, err
	}
	return &lockedListener{Listener: l, lock: lock}, nil
}

func bind(path, runtimePath string) (net.Listener, error) {
	if err := removeStale(path); err != nil {
		return nil, err
	}
	// The file is to be closed to others from its first moment, which only the
	// umask can do. It is the process's, so this belongs early in main.
	mask := syscall.Umask(0o177)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	syscall.Umask(mask)
	if err != nil {
		return nil, err
	}
	if err := CopyAccess(path, runtimePath); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// removeStale removes a socket that nobody serves.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("there is a file that is not a socket (%s): remove it or choose another path", info.Mode().Type())
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		conn.Close()
		return fmt.Errorf("%w: stop it or choose another path", ErrInUse)
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("cannot tell whether the existing socket is served: %w", err)
	}
	return os.Remove(path)
}

// CopyAccess gives path the owner and mode of the runtime's socket if there is one.
// It is to be called again when the runtime answers, which it does only after it
// has given its socket the final owner and mode.
func CopyAccess(path, runtimePath string) error {
	info, err := os.Stat(runtimePath)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); ok {
		if err := os.Chown(path, int(owner.Uid), int(owner.Gid)); err != nil {
			return err
		}
	}
	return os.Chmod(path, info.Mode().Perm())
}

func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w (it locks %s): stop it or choose another path", ErrInUse, path)
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return f, nil
}

// lockedListener holds the lock until the socket file is gone.
type lockedListener struct {
	net.Listener
	lock *os.File
}

// Close implements net.Listener.
func (l *lockedListener) Close() error {
	return errors.Join(l.Listener.Close(), l.lock.Close())
}
