package cluster

import (
	"context"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kubeslot/kubeslot/test/cluster/build"
	"github.com/kubeslot/kubeslot/version"
)

// Pinned is the minor version of Kubernetes that a cluster runs unless Versions says
// otherwise, and that our own programs are made of.
var Pinned = version.KubernetesVersion(version.KubernetesMinor)

// Versions are minor versions, such as 1.36, of a cluster's programs that are not of the
// pinned one. They are built when a cluster first asks for them: one of Kubernetes takes some
// ten minutes, one of containerd two.
type Versions struct {
	// ControlPlane is kube-apiserver's and kube-controller-manager's.
	ControlPlane string
	// Kubelets are the nodes'.
	Kubelets map[string]string
	// Containerds are the nodes', of containerd's versions.
	Containerds map[string]string
}

// The versions that Versions may name, each a module of its own in upstream.
var (
	older            = version.OlderKubernetes()
	OlderContainerds = []string{"2.0", "2.1", "2.2", "2.3"}
)

// olderKubelet and olderControlPlane are apart, for most of a build is what they differ in.
func olderKubelet(version string) build.Module {
	return olderKubernetes("kubelet", version, Kubelet)
}

func olderControlPlane(version string) build.Module {
	return olderKubernetes("control-plane", version, APIServer, ControllerManager)
}

func olderKubernetes(name, version string, programs ...string) build.Module {
	m := build.Module{
		Name: name + "-" + version, Dir: "kubernetes-" + version, Module: "k8s.io/kubernetes",
		LDFlags: build.KubernetesVersion("%[1]s", strings.TrimPrefix(version, "1.")),
	}
	for _, program := range programs {
		m.Packages = append(m.Packages, "k8s.io/kubernetes/cmd/"+program)
	}
	return m
}

func olderContainerd(version string) build.Module {
	const module = "github.com/containerd/containerd/v2"
	return build.Module{
		Dir: "containerd-" + version, Module: module, LDFlags: "-X " + module + "/version.Version=%s",
		Packages: []string{module + "/cmd/containerd", module + "/cmd/containerd-shim-runc-v2"},
	}
}

func (v Versions) validate(nodes []string) error {
	for _, version := range append(slices.Collect(maps.Values(v.Kubelets)), v.ControlPlane) {
		if !current(version) && !slices.Contains(older, version) {
			return fmt.Errorf("version %q of Kubernetes: can be one of %s, %s", version, older, Pinned)
		}
	}
	for _, version := range v.Containerds {
		if !slices.Contains(OlderContainerds, version) {
			return fmt.Errorf("version %q of containerd: can be one of %s; a node that is not named has the pinned one", version, OlderContainerds)
		}
	}
	for _, node := range slices.Concat(slices.Collect(maps.Keys(v.Kubelets)), slices.Collect(maps.Keys(v.Containerds))) {
		if !slices.Contains(nodes, node) {
			return fmt.Errorf("node %q with another kubelet or containerd is none of the nodes %q", node, nodes)
		}
	}
	return nil
}

// build builds what the cache lacks and puts it among the programs: a kubelet as
// kubelet-<version>, containerd as containerd-<version>, the control plane in the place of
// the pinned one.
func (v Versions) build(ctx context.Context, repoRoot string, out io.Writer, programs programs) error {
	for _, version := range slices.Compact(slices.Sorted(maps.Values(v.Kubelets))) {
		if current(version) {
			continue
		}
		dir, err := olderKubelet(version).Build(ctx, repoRoot, out)
		if err != nil {
			return err
		}
		programs["kubelet-"+version] = filepath.Join(dir, Kubelet)
	}
	for _, version := range slices.Compact(slices.Sorted(maps.Values(v.Containerds))) {
		dir, err := olderContainerd(version).Build(ctx, repoRoot, out)
		if err != nil {
			return err
		}
		programs["containerd-"+version] = filepath.Join(dir, "containerd")
	}
	if current(v.ControlPlane) {
		return nil
	}
	dir, err := olderControlPlane(v.ControlPlane).Build(ctx, repoRoot, out)
	for _, name := range []string{APIServer, ControllerManager} {
		programs[name] = filepath.Join(dir, name)
	}
	return err
}

// kubelet is the name of a node's among the programs.
func (v Versions) kubelet(node string) string {
	if version := v.Kubelets[node]; !current(version) {
		return "kubelet-" + version
	}
	return Kubelet
}

// containerd is the name of a node's among the programs.
func (v Versions) containerd(node string) string {
	if version, ok := v.Containerds[node]; ok {
		return "containerd-" + version
	}
	return "containerd"
}

// current reports whether a version is the pinned one.
func current(version string) bool { return version == "" || version == Pinned }
