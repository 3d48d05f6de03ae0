package cluster

import (
	"context"
	"io"
	"path/filepath"
)

// kubeadm is built for those alone who ask for it.
var kubeadm = upstream{
	dir: "kubeadm", module: "k8s.io/kubernetes",
	programs: map[string]string{"kubeadm": "k8s.io/kubernetes/cmd/kubeadm"},
	ldflags:  kubernetesVersion("36"),
}

// Kubeadm returns the path of the kubeadm program, which is built if that has not been
// done. It needs no cluster; out gets a line when it is built.
func Kubeadm(ctx context.Context, out io.Writer) (string, error) {
	root, err := FindRepoRoot(".")
	if err != nil {
		return "", err
	}
	folder, err := buildOnDemand(ctx, kubeadm, root, out)
	return filepath.Join(folder, "kubeadm"), err
}
