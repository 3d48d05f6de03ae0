package cluster

import (
	"context"
	"io"

	"github.com/kubeslot/kubeslot/test/cluster/build"
)

// Kubeadm returns the path of the kubeadm program, which is built if that has not been
// done. It needs no cluster; out gets a line when it is built.
func Kubeadm(ctx context.Context, out io.Writer) (string, error) {
	root, err := FindRepoRoot(".")
	if err != nil {
		return "", err
	}
	return buildOne(ctx, root, build.Kubeadm, out)
}
