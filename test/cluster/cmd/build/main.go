// Command build builds what a target of the Makefile runs on a cluster, into _output/cluster,
// and says how far it is. Without it the target would build the same, but only after minutes
// in which the target's own program is built without a word.
package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/kubeslot/kubeslot/test/cluster/build"
)

// further is what targets need beside the programs of every cluster.
var further = map[string][]string{
	"cluster":   nil,
	"demo":      {build.Demo},
	"demo-helm": {build.Demo, build.Helm},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "build:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("usage: build %s", strings.Join(slices.Sorted(maps.Keys(further)), "|"))
	}
	packages, ok := further[args[0]]
	if !ok {
		return fmt.Errorf("%q: want one of %q", args[0], slices.Sorted(maps.Keys(further)))
	}
	for _, set := range []map[string]string{build.Upstream, build.Ours, build.Images} {
		packages = slices.AppendSeq(packages, maps.Values(set))
	}
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	_, err = build.Programs{Root: root, Packages: packages, Out: os.Stdout}.Run(ctx)
	return err
}
