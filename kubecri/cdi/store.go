package cdi

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/kubecri/replacefile"
)

// Our files in a directory that is shared with others': kubeslot-<instance>.json.
const prefix, suffix = "kubeslot-", ".json"

// store keeps the spec files. Safe for concurrent use; one process writes at a time.
type store struct {
	dir string
	mu  sync.Mutex
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
	if info, err := os.Stat(path); err == nil && info.Mode() == mode {
		if now, err := os.ReadFile(path); err == nil && bytes.Equal(now, data) {
			return nil
		}
	}
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return err
	}
	return replacefile.Write(path, data, mode)
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
			s.mu.Lock()
			errs = append(errs, os.Remove(s.path(instance)))
			s.mu.Unlock()
		}
	}
	return errors.Join(errs...)
}
