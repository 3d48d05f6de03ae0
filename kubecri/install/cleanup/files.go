package cleanup

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	securejoin "github.com/cyphar/filepath-securejoin"
	"golang.org/x/sys/unix"

	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// Paths are where kubecri keeps things on a host; "" for nowhere.
type Paths struct {
	// Root is where the host's root directory is, "" for /. Links are followed as the host
	// would.
	Root string
	// StateDir is kubecri's own directory: what kubecri writes there goes, but for StateBefore, and the directory if
	// nothing else is in it.
	StateDir    string
	StateBefore []string
	// CDIDir has CDI specs of ours among those of others.
	CDIDir string
	// HandlersDir has the socket where discovery handlers register, and theirs.
	HandlersDir string
	// KubeletDir is the kubelet's directory, with sockets of our DRA driver and device plugins, which
	// stay when kubecri ends: the kubelet would look for the driver for ever.
	KubeletDir string
	// Listen is the socket's path where the kubelet found kubecri.
	Listen string
	// Empty are directories that go if they are empty.
	Empty []string
}

// ErrRuns is returned by Files while a kubecri works on the host.
var ErrRuns = errors.New("a kubecri runs on this node: stop it first, else it would write everything again")

// Hold marks the state directory as in use by a kubecri that runs, until the process
// ends or release is called. Any number may hold it.
func Hold(stateDir string) (release func(), err error) {
	return lock(stateDir, unix.LOCK_SH)
}

func lock(dir string, how int) (release func(), err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	return func() { f.Close() }, nil
}

// Check returns ErrRuns while a kubecri works on the host, and what is wrong with the
// paths.
func (p Paths) Check() error {
	paths := []string{p.Root, p.StateDir, p.CDIDir, p.HandlersDir, p.KubeletDir, p.Listen}
	for _, path := range append(paths, p.Empty...) {
		if path != "" && !filepath.IsAbs(path) {
			return fmt.Errorf("%q is not an absolute path", path)
		}
	}
	release, err := p.lock()
	if err == nil {
		release()
	}
	return err
}

// Files in the state directory. kubecri writes no others, and those by way of a temporary file.
const (
	CheckpointFile = "checkpoint.json"
	// RestoredFile says to the next process that the former has noticed a restore.
	RestoredFile = "restored"
	// SeenFile has the resource version that the process has seen last.
	SeenFile     = "resource-version"
	WorkerSocket = "discovery-worker.sock"
)

// ofState reports whether kubecri writes a file of the name in its state directory.
func ofState(name string) bool {
	if inner, is := strings.CutSuffix(name, ".tmp"); is {
		name = strings.TrimPrefix(inner, ".")
	}
	return slices.Contains([]string{CheckpointFile, RestoredFile, SeenFile, WorkerSocket}, name)
}

// lock takes the state directory for us alone.
func (p Paths) lock() (release func(), err error) {
	if p.StateDir == "" {
		return func() {}, nil
	}
	dir, err := resolve(p.Root, p.StateDir)
	if err != nil {
		return nil, err
	}
	release, err = lock(dir, unix.LOCK_EX)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return func() {}, nil
	case errors.Is(err, unix.EWOULDBLOCK):
		return nil, ErrRuns
	}
	return release, err
}

// Files removes what kubecri left on the host, and returns what it removed, and what stays in the state directory
// since kubecri did not write it. What is not there is no error.
func Files(p Paths) (removed, stays []string, err error) {
	if err := p.Check(); err != nil {
		return nil, nil, err
	}
	release, err := p.lock()
	if err != nil {
		return nil, nil, err
	}
	defer release()
	r := &remover{root: p.Root}
	if p.CDIDir != "" {
		r.matching(p.CDIDir, func(name, _ string) bool {
			name, temporary := strings.CutPrefix(name, ".")
			ours := strings.HasPrefix(name, "kubeslot-") || strings.HasPrefix(name, v1alpha1.DRADriver+"-")
			return ours && (temporary && strings.HasSuffix(name, ".tmp") || !temporary && strings.HasSuffix(name,
				".json"))
		})
		r.empty(p.CDIDir)
	}
	if p.HandlersDir != "" {
		r.deadSockets(p.HandlersDir, "")
		r.empty(p.HandlersDir)
	}
	if p.KubeletDir != "" {
		own := filepath.Join(p.KubeletDir, "plugins", v1alpha1.DRADriver)
		r.deadSockets(own, "")
		r.empty(own)
		r.deadSockets(filepath.Join(p.KubeletDir, "plugins_registry"), v1alpha1.DRADriver+"-")
		r.deadSockets(filepath.Join(p.KubeletDir, "device-plugins"), "kubeslot-")
	}
	if p.Listen != "" {
		base := filepath.Base(p.Listen)
		r.matching(filepath.Dir(p.Listen), func(name, path string) bool { return name == base && deadSocket(path) || name == base+".lock" })
		r.empty(filepath.Dir(p.Listen))
	}
	if p.StateDir != "" {
		r.matching(p.StateDir, func(name, _ string) bool {
			return ofState(name) && !slices.Contains(p.StateBefore, name)
		})
		_, left := r.list(p.StateDir)
		for _, entry := range left {
			stays = append(stays, filepath.Join(p.StateDir, entry.Name()))
		}
		r.empty(p.StateDir)
	}
	for _, dir := range p.Empty {
		r.empty(dir)
	}
	return r.removed, stays, errors.Join(r.errs...)
}

// remover removes files beneath root, and remembers.
type remover struct {
	root    string
	removed []string
	errs    []error
}

func (r *remover) done(path string, err error) {
	switch {
	case err == nil:
		r.removed = append(r.removed, path)
	case !errors.Is(err, fs.ErrNotExist):
		r.errs = append(r.errs, err)
	}
}

// list returns where the directory is, and what is in it: nothing if it cannot be read.
func (r *remover) list(dir string) (at string, entries []os.DirEntry) {
	at, err := resolve(r.root, dir)
	if err == nil {
		entries, err = os.ReadDir(at)
	}
	if err != nil {
		r.done(dir, err)
	}
	return at, entries
}

// matching removes files of the directory; which gets their names and where they are.
func (r *remover) matching(dir string, which func(name, path string) bool) {
	at, entries := r.list(dir)
	for _, entry := range entries {
		if path := filepath.Join(at, entry.Name()); !entry.IsDir() && which(entry.Name(), path) {
			r.done(filepath.Join(dir, entry.Name()), os.Remove(path))
		}
	}
}

// deadSockets removes sockets of the directory whose names begin with the prefix and at which nobody listens.
func (r *remover) deadSockets(dir, prefix string) {
	r.matching(dir, func(name, path string) bool { return strings.HasPrefix(name, prefix) && deadSocket(path) })
}

// empty removes the directory if it is empty. One that is mounted stays.
func (r *remover) empty(dir string) {
	at, err := resolve(r.root, dir)
	if err == nil {
		err = unix.Rmdir(at)
	}
	switch {
	case errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.EEXIST), errors.Is(err, unix.EBUSY), errors.Is(err, unix.ENOTDIR):
	default:
		r.done(dir, about("remove "+dir, err))
	}
}

// deadSocket reports whether the file is a unix socket that nobody listens at.
func deadSocket(path string) bool {
	info, err := os.Lstat(path)
	if err != nil || info.Mode()&fs.ModeSocket == 0 {
		return false
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		conn.Close()
		return false
	}
	return errors.Is(err, unix.ECONNREFUSED)
}

// resolve returns where the path is, beneath root, with links followed as a process
// would whose root directory that is. What does not exist is left as it is. The last
// element may be a link, and is followed too.
func resolve(root, path string) (string, error) {
	return securejoin.SecureJoin(filepath.Join("/", root), path)
}
