package cluster

import (
	"context"
	"io"

	"github.com/kubeslot/kubeslot/test/cluster/build"
)

// Kubeadm returns the path of the kubeadm program, a static one, which is built if that has not been
// done. It needs no cluster; out gets a line when it is built.
func Kubeadm(ctx context.Context, out io.Writer) (string, error) {
	root, err := FindRepoRoot(".")
	if err != nil {
		return "", err
	}
	built, err := build.Programs{Root: root, Packages: []string{build.Kubeadm}, Static: true, Out: out}.Run(ctx)
	return built[build.Kubeadm], err
}
