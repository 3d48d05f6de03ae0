package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeslot/kubeslot/plugins/example/widget"
	"github.com/kubeslot/kubeslot/test/cluster"
	"github.com/kubeslot/kubeslot/test/cluster/build"
	"github.com/kubeslot/kubeslot/types"
)

const (
	// examplePlugin is the node's half of the example plugin as a .so file, and exampleServer the
	// plugin as a gRPC server.
	examplePlugin = "plugins/example/device"
	exampleServer = "./plugins/example/server"
	// aWidget is one that a node has by default.
	aWidget = types.DeviceGroupPrefix + "/board/0/widget/0/cards"
)

// runPlugins measures containers that get a widget of the example plugin, which is a .so file first
// and a gRPC server then.
func (d *deviceBench) runPlugins(ctx context.Context, b *bench) (err error) {
	const so, remote = "Create, Remove with a .so plugin", "Create, Remove with a gRPC plugin"
	if !b.only.MatchString(so) && !b.only.MatchString(remote) {
		return nil
	}
	defer func() { err = errors.Join(err, d.removePods(context.WithoutCancel(ctx))) }()
	container := types.ContainerInfo{AllocateFrom: types.ResourceLocation{aWidget: aWidget}}
	pod, err := d.bind(ctx, "bench-plugin", corev1.ResourceName(widget.Resource), container, nil)
	if err != nil {
		return err
	}
	create, remove, err := d.creating(ctx, b, pod)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove(context.WithoutCancel(ctx))) }()
	if err := d.withFile(ctx, b, func() error { return b.measure(ctx, operation{so, 20, 1, create}) }); err != nil {
		return err
	}
	return d.withServer(ctx, b, func() error {
		var last error // while the plugin is not ready
		if err := poll(ctx, "the plugin's server", func() (bool, error) {
			last = create(ctx, b.ways[1])
			return last == nil, nil
		}); err != nil {
			return errors.Join(err, last)
		}
		return b.measure(ctx, operation{remote, 20, 1, create})
	})
}

// withFile calls f while kubecri has the plugin's .so file.
func (d *deviceBench) withFile(ctx context.Context, b *bench, f func() error) (err error) {
	folder := filepath.Join(d.cluster.Config().RepoRoot, examplePlugin)
	files, err := d.cluster.LoadPlugins(ctx, []string{d.node}, folder)
	defer func() {
		for _, file := range files {
			err = errors.Join(err, os.Remove(file))
		}
		err = errors.Join(err, d.restart(context.WithoutCancel(ctx), b))
	}()
	if err != nil {
		return err
	}
	if b.kubecri.pid, err = d.cluster.PID(cluster.Kubecri, d.node); err != nil {
		return err
	}
	return f()
}

// withServer calls f while kubecri connects to the plugin's server.
func (d *deviceBench) withServer(ctx context.Context, b *bench, f func() error) (err error) {
	root := d.cluster.Config().RepoRoot
	built, err := build.Programs{Root: root, Packages: []string{exampleServer}, Out: os.Stderr}.Run(ctx)
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "bench-cri-plugins-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	server := exec.CommandContext(ctx, built[exampleServer], "--half=device", "--socket-folder="+folder)
	server.Stderr = os.Stderr
	server.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := server.Start(); err != nil {
		return fmt.Errorf("start the example plugin's server: %w", err)
	}
	defer func() {
		_ = server.Process.Kill() // it may have ended
		_ = server.Wait()
	}()
	if err := d.restart(ctx, b, "--plugin-sockets="+folder); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.restart(context.WithoutCancel(ctx), b)) }()
	return f()
}
