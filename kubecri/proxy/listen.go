package proxy

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"github.com/kubeslot/kubeslot/discovery/unixsocket"
)

// Listen makes the socket file for the kubelet. Whoever may talk to the runtime
// may talk to us and nobody else: the file takes the owner and mode of the
// runtime's socket, or 0600 when there is none yet, until CopyAccess.
//
// A file that a dead process left is replaced. One that is served is left alone
// (unixsocket.ErrServed): two shims taking each other's calls would lose claims. A
// lock on `<path>.lock` keeps two starting at once from both finding the file dead;
// it goes with the process, the file stays.
func Listen(path, runtimePath string) (net.Listener, error) {
	if path == runtimePath {
		return nil, fmt.Errorf("listen on %s: this is the runtime's own endpoint: kubecri needs another", path)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	lock, err := lockFile(path + ".lock")
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	socket, err := unixsocket.Listen(path)
	if err != nil {
		lock.Close()
		return nil, err
	}
	l := &lockedListener{Listener: socket, lock: lock}
	if err := CopyAccess(path, runtimePath); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
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
			return nil, fmt.Errorf("%w (it locks %s)", unixsocket.ErrServed, path)
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return f, nil
}

// lockedListener holds the lock until the socket file is gone.
type lockedListener struct {
	*unixsocket.Listener
	lock *os.File
}

// Close implements net.Listener.
func (l *lockedListener) Close() error {
	l.Remove()
	return errors.Join(l.Listener.Close(), l.lock.Close())
}
