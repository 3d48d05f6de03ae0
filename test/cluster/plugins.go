package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// LoadPlugins builds the .so plugins of the folders for the cluster's programs, and has the
// scheduler load those that are its half, and the nodes' kubecri the others. It returns the
// files that they load: without them, and after a restart, the plugins are gone. When it
// returns, the programs serve.
func (c *Cluster) LoadPlugins(ctx context.Context, nodes []string, folders ...string) (files []string, err error) {
	built, err := c.BuildPlugins(ctx, folders...)
	if err != nil {
		return nil, err
	}
	type program struct{ component, node string }
	var restart []program
	for _, file := range built {
		to := map[program]string{}
		if filepath.Base(filepath.Dir(file)) == "schedulers" {
			to[program{Scheduler, ""}] = c.SchedulerPluginDir()
		} else {
			for _, node := range nodes {
				to[program{Kubecri, node}] = c.layout.node(node).DevicePluginDir
			}
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return files, err
		}
		for p, folder := range to {
			loaded := filepath.Join(folder, filepath.Base(file))
			if err := writeAtomic(loaded, text); err != nil {
				return files, err
			}
			files = append(files, loaded)
			if !slices.Contains(restart, p) {
				restart = append(restart, p)
			}
		}
	}
	for _, p := range restart {
		err = errors.Join(err, c.Restart(p.component, p.node))
	}
	if err != nil {
		return files, err
	}
	for _, p := range restart {
		err = errors.Join(err, c.AwaitServing(ctx, p.component, p.node))
	}
	return files, err
}

// BuildPlugins builds the .so plugins of the folders for the cluster's programs. It returns the
// files, sorted by halves: plugins/schedulers, plugins/devices.
func (c *Cluster) BuildPlugins(ctx context.Context, folders ...string) (files []string, err error) {
	args := []string{"run", "./plugins/builder", "-binaries", c.BinDir()}
	for _, folder := range folders {
		folder, err := filepath.Abs(folder) // the builder runs elsewhere
		if err != nil {
			return nil, err
		}
		args = append(args, folder)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = c.cfg.RepoRoot
	var said bytes.Buffer
	cmd.Stderr = &said
	built, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("build plugins: %w\n%s", err, &said)
	}
	return strings.Fields(string(built)), nil
}
