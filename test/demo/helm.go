package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kubeslot/kubeslot/test/cluster"
	"github.com/kubeslot/kubeslot/test/helm/rig"
)

// withHelm gives the same show on a stock cluster, into which the chart goes first, and
// which is as before in the end.
func withHelm(ctx context.Context, cfg cluster.Config, keep bool) (err error) {
	title("Bring up a stock cluster: API server, kube-scheduler, two nodes with kubelet and containerd, images of Kubeslot")
	r, err := rig.Up(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() {
		if keep && err == nil {
			err = howToUse(ctx, r.Cluster)
			return
		}
		title("Take the cluster down")
		err = errors.Join(err, r.Down(context.Background()))
	}()
	helm := func(args ...string) error {
		fmt.Println("$", helmCommand(args))
		out, err := r.Helm(ctx, args...)
		fmt.Print(out)
		return err
	}

	title("Install the chart; pods that ask for devices are to get its scheduler by themselves")
	install := []string{"install", "kubeslot", chart, "--create-namespace", "--wait", "--set", "scheduler.otherSchedulers=Mutate"}
	if err := helm(append(install, r.Values()...)...); err != nil {
		return err
	}
	if err := helm("test", "kubeslot", "--logs"); err != nil {
		return err
	}
	s, err := newShow(ctx, r.Cluster)
	if err != nil {
		return err
	}
	if err := s.play(); err != nil {
		return err
	}
	if keep {
		return nil
	}

	title("Uninstall it: the pods run on, and the nodes are as before")
	if err := helm("uninstall", "kubeslot", "--wait"); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"get", "pods"},
		{"get", "nodes", "-o", `jsonpath={range .items[*]}{.metadata.name}: {.status.capacity}{"\n"}{end}`},
	} {
		if err := s.print(s.kubectl(args...)); err != nil {
			return err
		}
	}
	for _, n := range r.Nodes() {
		left, err := filepath.Glob(filepath.Join(n.Dir, "var-log", "kubecri"))
		if err != nil || len(left) > 0 {
			return errors.Join(err, fmt.Errorf("node %s has %v still", n.Name, left))
		}
	}
	return nil
}

// chart is its directory: the demo runs in the repository's root, as its reader does.
const chart = "deploy/helm/kubeslot"

// helmCommand is the command as a reader types it, with a line for each value.
func helmCommand(args []string) string {
	values := slices.Index(args, "--set")
	if values < 0 {
		values = len(args)
	}
	words := slices.Insert(slices.Clone(args), values, "--namespace", rig.Namespace)
	return "helm " + strings.ReplaceAll(strings.Join(words, " "), " --set ", " \\\n    --set ")
}
