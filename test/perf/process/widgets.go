package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/kubeslot/kubeslot/plugins/example/widget"
	"github.com/kubeslot/kubeslot/test/cluster/build"
	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/assignment"
)

const (
	// examplePlugin is the scheduler's half of the example plugin as a .so file, and exampleServer
	// the plugin as a gRPC server.
	examplePlugin = "plugins/example/scheduler"
	exampleServer = "./plugins/example/server"
	// widgetsPerBoard is how many widgets sit on a board.
	widgetsPerBoard = 2
)

// widgetPlugin is the example plugin beside a scheduler.
type widgetPlugin struct {
	device widget.Device // what each node has
	flags  []string      // the scheduler's
	cmd    *exec.Cmd     // nil for a .so file
}

// installPlugin builds the plugin and starts it, if it is a process, for as long as the cluster is up.
func (a *arm) installPlugin(ctx context.Context, folder string) error {
	if err := os.Mkdir(folder, 0o755); err != nil {
		return err
	}
	if err := a.prepareWidgets(); err != nil {
		return err
	}
	root := a.cluster.Config().RepoRoot
	if !a.remote {
		files, err := a.cluster.BuildPlugins(ctx, filepath.Join(root, examplePlugin))
		if err != nil {
			return err
		}
		a.plugin.flags = []string{"--devschedpath=" + folder}
		args := append([]string{"-m", "644", "-t", folder}, files...)
		if text, err := exec.CommandContext(ctx, "install", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("install %v: %w: %s", files, err, text)
		}
		return nil
	}
	built, err := build.Programs{Root: root, Packages: []string{exampleServer}, Out: os.Stderr}.Run(ctx)
	if err != nil {
		return err
	}
	// The scheduler has the pods wait for the plugin until it has come.
	a.plugin.flags = []string{"--plugin-sockets=" + folder,
		"--plugin-policy=" + widget.Scheduler{}.GetName() + "=required"}
	a.plugin.cmd = exec.CommandContext(ctx, built[exampleServer], "--half=scheduler", "--socket-folder="+folder)
	a.plugin.cmd.Stderr = os.Stderr
	a.plugin.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return a.plugin.cmd.Start()
}

// prepareWidgets has each node have as many widgets as other arms' have slots.
func (a *arm) prepareWidgets() error {
	layout := fmt.Sprintf("%dx%d", a.slots/widgetsPerBoard, widgetsPerBoard)
	return errors.Join(os.Setenv(widget.LayoutEnv, layout), a.plugin.device.Start())
}

func (p widgetPlugin) stop() error {
	if p.cmd == nil || p.cmd.Process == nil {
		return nil
	}
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	_ = p.cmd.Wait() // it was killed
	return nil
}

// nodeAnnotations are what kubecri writes to a node that has widgets.
func (a *arm) nodeAnnotations() (map[string]string, error) {
	if !a.widgets {
		return nil, nil
	}
	info := types.NewNodeInfo()
	if err := a.plugin.device.UpdateNodeInfo(info); err != nil {
		return nil, err
	}
	text, err := assignment.EncodeNode(info)
	return map[string]string{assignment.Annotation: text}, err
}

// assignedWidget is the one widget that the container was assigned.
func assignedWidget(c *types.ContainerInfo) (string, error) {
	if len(c.AllocateFrom) != 1 {
		return "", fmt.Errorf("want one widget, got %v", c.AllocateFrom)
	}
	return string(slices.Collect(maps.Values(c.AllocateFrom))[0]), nil
}
