// Package hostpaths says which paths of the node discovery handlers may give to
// containers. Whoever may register a handler or write a Configuration chooses the paths,
// and a mount of the wrong one makes a container root on the node.
package hostpaths

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	securejoin "github.com/cyphar/filepath-securejoin"

	"github.com/kubeslot/kubeslot/discovery"
)

// Default is what is allowed when nobody says otherwise: device nodes, and what udev
// knows of them.
var Default = []string{"/dev", "/run/udev"}

// Allowed are the paths that may be given, with all that is below them. The zero value
// allows none. Safe for concurrent use.
type Allowed struct {
	all     []string            // for handlers that are not in handlers
	handler map[string][]string // by handler's name
}

// Parse reads entries of the form `[handler=]path`. An entry with a handler's name is for
// that handler, which then has no others; with an empty path it has none. It returns an
// error for a path that is not absolute and clean.
func Parse(entries []string) (Allowed, error) {
	a := Allowed{handler: map[string][]string{}}
	var errs []error
	for _, entry := range entries {
		handler, path, named := strings.Cut(entry, "=")
		if !named {
			handler, path = "", entry
		}
		switch {
		case named && handler == "":
			errs = append(errs, fmt.Errorf("%q names no handler: want [handler=]path", entry))
		case named && path == "":
			a.handler[handler] = slices.Clip(a.handler[handler]) // none, unless others name it too
		case check(path) != nil:
			errs = append(errs, fmt.Errorf("%q: %w", entry, check(path)))
		case named:
			a.handler[handler] = append(a.handler[handler], path)
		default:
			a.all = append(a.all, path)
		}
	}
	return a, errors.Join(errs...)
}

// Named are those that entries name a handler for, without those for all handlers.
func (a Allowed) Named() Allowed { return Allowed{handler: a.handler} }

// Check returns an error when the device has a mount or a device node that the handler
// may not give. Of the directories for all handlers it may give read-only mounts alone: who
// writes /run/udev/rules.d is root on the node. Links are followed, so what counts is
// where the path leads now. It reads the file system.
func (a Allowed) Check(handler string, device discovery.Device) error {
	allowed, own := a.handler[handler]
	if !own {
		allowed = a.all
	}
	for _, m := range device.Mounts {
		if err := mayGive(handler, allowed, m.HostPath); err != nil {
			return fmt.Errorf("mount of %q: %w", m.HostPath, err)
		}
		if !m.ReadOnly && !own {
			return fmt.Errorf("mount of %q: want readOnly: true; an entry %q of kubecri's --handler-allowed-paths lets it be written",
				m.HostPath, handler+"="+m.HostPath)
		}
	}
	for _, d := range device.DeviceSpecs {
		if err := mayGive(handler, allowed, d.HostPath); err != nil {
			return fmt.Errorf("device node %q: %w", d.HostPath, err)
		}
	}
	return nil
}

func mayGive(handler string, allowed []string, path string) error {
	if err := check(path); err != nil {
		return err
	}
	real, err := resolve(path)
	if err != nil {
		return err
	}
	var refused error // why the directory that has the path does not do
	for _, directory := range allowed {
		switch root, err := filepath.EvalSymlinks(directory); {
		case err != nil:
			directory = filepath.Clean(directory)
			if discovery.Within(directory, filepath.Clean(path)) || discovery.Within(directory, real) {
				refused = fmt.Errorf("kubecri does not see the allowed directory %s (%w): where it runs in a container, mount that directory into it at the same place", directory, err)
			}
		case discovery.Within(root, real):
			if refused = public(root, real); refused == nil {
				return nil
			}
		}
	}
	if refused != nil {
		return refused
	}
	leads := ""
	if real != path {
		leads = fmt.Sprintf(", which leads to %s,", real)
	}
	return fmt.Errorf("the path%s is in none of the directories that handler %q may give to containers, %q; kubecri's --handler-allowed-paths says which",
		leads, handler, allowed)
}

// public returns an error when the path is in a directory below root that anybody may write,
// such as /dev/shm: what is there now may be another thing when a container gets it.
func public(root, path string) error {
	for path != root {
		if path = filepath.Dir(path); path == root {
			break // whoever allowed it knows it
		}
		info, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o002 != 0 {
			return fmt.Errorf("is in %s, which anybody may write", path)
		}
	}
	return nil
}

func check(path string) error {
	switch {
	case !filepath.IsAbs(path):
		return errors.New("is not an absolute path")
	case strings.ContainsRune(path, 0):
		return errors.New("has NUL in it")
	case slices.Contains(strings.Split(path, "/"), ".."):
		return errors.New("has .. in it")
	}
	return nil
}

// resolve follows the links of a path, but none in /proc: what /proc/self/fd/0 leads to
// is another file for each process. What is not there yet has no links: a container
// runtime may make a directory that it is to mount.
func resolve(path string) (string, error) { return securejoin.SecureJoinVFS("/", path, links{}) }

// procDir is where procfs is mounted.
const procDir = "/proc"

// links are the host's that are followed.
type links struct{}

// Lstat implements securejoin.VFS.
func (links) Lstat(name string) (os.FileInfo, error) { return os.Lstat(name) }

// Readlink implements securejoin.VFS.
func (links) Readlink(name string) (string, error) {
	name = filepath.Clean(name)
	if discovery.Within(procDir, name) {
		return "", fmt.Errorf("leads through %s, which is another file for each process", name)
	}
	switch _, err := os.Stat(name); {
	case errors.Is(err, syscall.ELOOP):
		return "", errors.New("has too many links")
	case errors.Is(err, fs.ErrNotExist):
		return "", errors.New("is a link that leads to nothing") // or to what is made later, anywhere
	}
	return os.Readlink(name)
}
