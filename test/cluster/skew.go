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

// Versions are minor versions of Kubernetes, such as 1.36, of a cluster's programs that
// are not of the pinned one. They are built when a cluster first asks for them, which
// takes some ten minutes each.
type Versions struct {
	// ControlPlane is kube-apiserver's and kube-controller-manager's.
	ControlPlane string
	// Kubelets are the nodes'.
	Kubelets map[string]string
}

// older are the versions that Versions may name, each a module of its own in upstream.
var older = version.OlderKubernetes()

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

func (v Versions) validate(nodes []string) error {
	for _, version := range append(slices.Collect(maps.Values(v.Kubelets)), v.ControlPlane) {
		if !current(version) && !slices.Contains(older, version) {
			return fmt.Errorf("version %q of Kubernetes: can be one of %s, %s", version, older, Pinned)
		}
	}
	for node := range v.Kubelets {
		if !slices.Contains(nodes, node) {
			return fmt.Errorf("node %q with another kubelet is none of the nodes %q", node, nodes)
		}
	}
	return nil
}

// build builds what the cache lacks and puts it among the programs: a kubelet as
// kubelet-<version>, the control plane in the place of the pinned one.
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

// current reports whether a version is the pinned one.
func current(version string) bool { return version == "" || version == Pinned }
