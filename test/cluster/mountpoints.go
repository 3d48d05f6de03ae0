package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kubeslot/kubeslot/test/cluster/build"
)

// hostMountPoints is the record of this machine.
var hostMountPoints = mountPoints{filepath.Join(clustersDir, ".mount-points.json")}

// mountPoints is a file that records the directories which clusters made on the machine to
// mount over, in the mount namespaces of their nodes. All clusters mount over the same ones,
// so the last cluster removes them. A directory that was there before is never removed.
type mountPoints struct{ file string }

// recorded is what the file has.
type recorded struct {
	// Made are directories that were not there before.
	Made []string `json:"made"`
	// Clusters are the state directories of the clusters that use them.
	Clusters []string `json:"clusters"`
}

// make makes the directories that are missing, with their parents. It records them first,
// so that they are known if this process is killed.
func (m mountPoints) make(ctx context.Context, stateDir string, dirs ...string) error {
	if err := os.MkdirAll(filepath.Dir(m.file), 0o755); err != nil {
		return err
	}
	return m.change(ctx, func(r *recorded) error {
		if !slices.Contains(r.Clusters, stateDir) {
			r.Clusters = append(r.Clusters, stateDir)
		}
		for _, dir := range dirs {
			for ; !exists(dir) && !slices.Contains(r.Made, dir); dir = filepath.Dir(dir) {
				r.Made = append(r.Made, dir)
			}
		}
		if err := m.write(*r); err != nil {
			return err
		}
		for _, dir := range dirs {
			if err := os.MkdirAll(dir, 0o711); err != nil {
				return fmt.Errorf("mount point for the nodes: %w", err)
			}
		}
		return nil
	})
}

// release says that the cluster is gone. The last one's removes all directories that were
// made, but for those that somebody else has put something into.
func (m mountPoints) release(ctx context.Context, stateDir string) error {
	if !exists(m.file) {
		return nil
	}
	return m.change(ctx, func(r *recorded) error {
		r.Clusters = slices.DeleteFunc(r.Clusters, func(dir string) bool { return dir == stateDir || isGone(dir) })
		if len(r.Clusters) > 0 {
			return m.write(*r)
		}
		slices.SortFunc(r.Made, func(a, b string) int { return strings.Compare(b, a) }) // parents come last
		for _, dir := range r.Made {
			_ = os.Remove(dir) // fails if it is not empty
		}
		if err := os.Remove(m.file); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
}

// change calls the function with what is recorded. Processes take turns.
func (m mountPoints) change(ctx context.Context, change func(*recorded) error) error {
	unlock, err := build.Lock(ctx, filepath.Dir(m.file))
	if err != nil {
		return err
	}
	defer unlock()
	var r recorded
	data, err := os.ReadFile(m.file)
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("record of mount points %s: %w", m.file, err)
	}
	return change(&r)
}

func (m mountPoints) write(r recorded) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return writeAtomic(m.file, data)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// isGone reports whether a state directory has no cluster: nobody took it down who could
// have released its mount points.
func isGone(stateDir string) bool {
	entries, err := os.ReadDir(stateDir)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	return !slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() != filepath.Base(layout{}.logs()) })
}
