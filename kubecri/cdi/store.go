package cdi

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/kubecri/replacefile"
)

// Our files in a directory that is shared with others': kubeslot-<instance>.json.
const prefix, suffix = "kubeslot-", ".json"

// store keeps the spec files. Safe for concurrent use; one process writes at a time.
type store struct {
	dir string
	mu  sync.Mutex
	// changed is when files that were there lately got other content, or were removed, by path.
	changed map[string]time.Time
}

func (s *store) path(instance string) string {
	return filepath.Join(s.dir, prefix+instance+suffix)
}

// notDescribed is the error for a device that CDI cannot describe, as it is: no
// fault of the disk.
type notDescribed struct{ error }

// put makes the file say what the device is. A reader finds the former file or
// the new one, also after a crash.
func (s *store) put(instance string, device discovery.Device) error {
	data, err := describe(instance, device)
	if err != nil {
		return notDescribed{err}
	}
	return s.write(s.path(instance), data)
}

// write makes data the file's content.
func (s *store) write(path string, data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if was, err := os.ReadFile(path); err == nil && !bytes.Equal(was, data) {
		s.note(path)
	} else if info, statErr := os.Stat(path); err == nil && statErr == nil && info.Mode() == mode {
		return nil
	}
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return err
	}
	return replacefile.Write(path, data, mode)
}

// settled reports whether a runtime does not give what the file said before any more.
func (s *store) settled(path string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.changed[path]) >= readWithin
}

// note notes that a file that was there changes now. The lock is held.
func (s *store) note(path string) {
	maps.DeleteFunc(s.changed, func(_ string, at time.Time) bool { return time.Since(at) >= readWithin })
	s.changed[path] = time.Now()
}

// remove removes a file.
func (s *store) remove(path string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note(path)
	return os.Remove(path)
}

// mode is that of the files: properties may be secrets.
const mode fs.FileMode = 0o640

// prune removes the files of Instances whose devices are gone, those that a
// former life wrote too.
func (s *store) prune(gone func(instance string) bool) error {
	entries, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for CDI specs: %w", err)
	}
	var errs []error
	for _, entry := range entries {
		name, ours := strings.CutPrefix(entry.Name(), prefix)
		instance, spec := strings.CutSuffix(name, suffix)
		if ours && spec && gone(instance) {
			errs = append(errs, s.remove(s.path(instance)))
		}
	}
	return errors.Join(errs...)
}
