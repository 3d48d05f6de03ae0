package cluster

import (
	"context"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
)

// Pinned is the minor version of Kubernetes that a cluster runs unless Versions says
// otherwise, and that our own programs are made of.
const Pinned = "1.36"

// Versions are minor versions of Kubernetes, such as 1.35, of a cluster's programs that
// are not of the pinned one. They are built when a cluster first asks for them, which
// takes some ten minutes each.
type Versions struct {
	// ControlPlane is kube-apiserver's and kube-controller-manager's.
	ControlPlane string
	// Kubelets are the nodes'.
	Kubelets map[string]string
}

// older are the versions that Versions may name, each a module of its own in upstream.
var older = map[string]upstream{"1.33": olderKubernetes("33"), "1.34": olderKubernetes("34"), "1.35": olderKubernetes("35")}

func olderKubernetes(minor string) upstream {
	return upstream{
		dir: "kubernetes-1." + minor, module: "k8s.io/kubernetes",
		programs: map[string]string{
			"kube-apiserver":          "k8s.io/kubernetes/cmd/kube-apiserver",
			"kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
			"kubelet":                 "k8s.io/kubernetes/cmd/kubelet",
		},
		ldflags: kubernetesVersion(minor),
	}
}

// all lists the versions, each once, without the pinned one.
func (v Versions) all() []string {
	versions := append(slices.Collect(maps.Values(v.Kubelets)), v.ControlPlane)
	versions = slices.DeleteFunc(versions, func(version string) bool { return version == "" || version == Pinned })
	slices.Sort(versions)
	return slices.Compact(versions)
}

func (v Versions) validate(nodes []string) error {
	for _, version := range v.all() {
		if _, ok := older[version]; !ok {
			return fmt.Errorf("Kubernetes %s: can be one of %s, %s", version, slices.Sorted(maps.Keys(older)), Pinned)
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
	for _, version := range v.all() {
		dir, err := buildOnDemand(ctx, older[version], repoRoot, out)
		if err != nil {
			return err
		}
		programs["kubelet-"+version] = filepath.Join(dir, "kubelet")
		if version == v.ControlPlane {
			for _, name := range []string{"kube-apiserver", "kube-controller-manager"} {
				programs[name] = filepath.Join(dir, name)
			}
		}
	}
	return nil
}

// kubelet is the name of a node's among the programs.
func (v Versions) kubelet(node string) string {
	if version := v.Kubelets[node]; version != "" && version != Pinned {
		return "kubelet-" + version
	}
	return Kubelet
}
