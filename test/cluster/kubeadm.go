package cluster

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// kubeadm is built for those alone who ask for it.
var kubeadm = upstream{
	dir: "kubeadm", module: "k8s.io/kubernetes",
	programs: map[string]string{"kubeadm": "k8s.io/kubernetes/cmd/kubeadm"},
	ldflags:  kubernetesVersion,
}

// Kubeadm returns the path of the kubeadm program, which is built if that has not been
// done. It needs no cluster; out gets a line when it is built.
func Kubeadm(ctx context.Context, out io.Writer) (string, error) {
	root, err := FindRepoRoot(".")
	if err != nil {
		return "", err
	}
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	t, err := newTarget(kubeadm, root, cache)
	if err != nil {
		return "", err
	}
	if !t.built() {
		fmt.Fprintf(out, "building %s %s (once for %s)\n", t.dir, t.version, t.out)
		if err := t.build(ctx); err != nil {
			return "", err
		}
	}
	return filepath.Join(t.out, "kubeadm"), nil
}
