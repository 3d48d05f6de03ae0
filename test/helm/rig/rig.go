// Package rig is a cluster as people have it, and helm for it: a stock scheduler, kubelets
// that talk to containerd, nothing of Kubeslot but its images. It is for the chart's tests
// and its demo.
package rig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/kubeslot/kubeslot/deploy/images"
	"github.com/kubeslot/kubeslot/test/cluster"
)

const (
	// Namespace is that of the release.
	Namespace = "kubeslot-system"
	// Registry and Version are of the images that the nodes have.
	Registry = "kubeslot.test"
	Version  = "v0.0.0-test"
)

// Components are those of the chart whose images the nodes have.
var Components = []string{"kube-scheduler", "kubecri", "controller", "chart-hooks"}

// Rig is a cluster with helm.
type Rig struct {
	*cluster.Cluster
	// Program is helm's, among the cluster's programs.
	Program string
	// Chart is the chart's folder.
	Chart string
	root  string
}

// Up brings the cluster up, with the images of Components and of more components.
func Up(ctx context.Context, cfg cluster.Config, more ...string) (*Rig, error) {
	root, err := cluster.FindRepoRoot(".")
	if err != nil {
		return nil, err
	}
	cfg.Stock, cfg.RepoRoot = true, root
	c, err := cluster.Up(ctx, cfg)
	if err != nil {
		return nil, err
	}
	r := &Rig{Cluster: c, Program: filepath.Join(c.BinDir(), "helm"), Chart: filepath.Join(root, "deploy/helm/kubeslot"), root: root}
	if err := r.prepare(ctx, append(slices.Clone(Components), more...)); err != nil {
		return nil, errors.Join(err, c.Down(context.WithoutCancel(ctx)))
	}
	return r, nil
}

func (r *Rig) prepare(ctx context.Context, components []string) error {
	program, err := r.Cluster.Helm(ctx)
	if err != nil {
		return err
	}
	if err := os.Symlink(program, r.Program); err != nil {
		return err
	}
	for _, node := range r.Nodes() {
		if err := r.MountSockets(ctx, node, "/run/containerd/containerd.sock", "/run/nri/nri.sock"); err != nil {
			return err
		}
	}
	for _, component := range images.Components() {
		if !slices.Contains(components, component.Name) {
			continue
		}
		if err := r.LoadImage(ctx, component); err != nil {
			return err
		}
	}
	return nil
}

// LoadImage builds an image, and loads it into the nodes as Registry/<name>:Version.
func (r *Rig) LoadImage(ctx context.Context, component images.Component) error {
	work, err := os.MkdirTemp(r.Config().StateDir, "images-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	fmt.Fprintf(r.Config().Out, "image %s: building, and loading it into %d nodes\n", component.Name, len(r.Nodes()))
	source := images.Source{Root: r.root, Version: Version, Revision: "test", Architectures: []string{runtime.GOARCH}}
	index, err := images.Build(ctx, source, component, work)
	if err != nil {
		return err
	}
	archive := filepath.Join(work, component.Name+".tar")
	if err := images.WriteArchive(archive, Registry+"/"+component.Name+":"+Version, index); err != nil {
		return err
	}
	ctr := filepath.Join(r.BinDir(), "ctr")
	for _, node := range r.Nodes() {
		args := []string{ctr, "--address", node.ContainerdSocket, "--namespace", "k8s.io", "image", "import", archive}
		if _, err := run(ctx, nil, args...); err != nil {
			return err
		}
	}
	return nil
}

// MountSockets shows the runtime's sockets of a node at these paths of the node. Their
// folders are the node's own.
func (r *Rig) MountSockets(ctx context.Context, node cluster.Node, runtime, nri string) error {
	for from, to := range map[string]string{node.ContainerdSocket: runtime, filepath.Join(node.Dir, "nri.sock"): nri} {
		if err := r.MakeMountPoints(ctx, filepath.Dir(to)); err != nil {
			return err
		}
		const script = `set -e; dir=$(dirname "$2")
			mountpoint -q "$dir" || mount -t tmpfs tmpfs "$dir"
			touch "$2"; mount --bind "$1" "$2"`
		if _, err := run(ctx, nil, "nsenter", "--mount="+node.MountNS, "sh", "-c", script, "sh", from, to); err != nil {
			return err
		}
	}
	return nil
}

// Values are those that this cluster needs, as arguments of helm: images that it has, and
// folders that each node has for itself.
func (r *Rig) Values() []string {
	var args []string
	for _, set := range []string{
		"image.registry=" + Registry, "image.tag=" + Version, "image.pullPolicy=Never",
		"kubecri.stateDirectory=/var/log/kubecri", "kubecri.handlersDirectory=/var/log/akri", "kubecri.cdiDirectory=/var/log/cdi",
	} {
		args = append(args, "--set", set)
	}
	return args
}

// Helm runs helm and returns what it prints; the error has that as well.
func (r *Rig) Helm(ctx context.Context, args ...string) (string, error) {
	return Helm(ctx, r.Program, r.Config().StateDir, append([]string{"--kubeconfig", r.Kubeconfig(), "--namespace", Namespace}, args...)...)
}

// Helm runs a helm that has its files in home.
func Helm(ctx context.Context, program, home string, args ...string) (string, error) {
	return run(ctx, []string{"HELM_CACHE_HOME=" + home, "HELM_CONFIG_HOME=" + home, "HELM_DATA_HOME=" + home}, append([]string{program}, args...)...)
}

// InNode runs a command in a node's mount namespace.
func InNode(ctx context.Context, node cluster.Node, argv ...string) (string, error) {
	return run(ctx, nil, append([]string{"nsenter", "--mount=" + node.MountNS, "--"}, argv...)...)
}

func run(ctx context.Context, env []string, argv ...string) (string, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), env...)
	var out, warnings bytes.Buffer // helm warns of values whose kind is not the default's
	cmd.Stdout, cmd.Stderr = &out, &warnings
	if err := cmd.Run(); err != nil {
		out.Write(warnings.Bytes())
		return out.String(), fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), err, out.String())
	}
	return out.String(), nil
}
