// Command release makes a release, or has the tree say its version. `make release` and
// `make release-version` run it.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/kubeslot/kubeslot/deploy/images"
	"github.com/kubeslot/kubeslot/deploy/krew"
	"github.com/kubeslot/kubeslot/deploy/release"
)

func main() {
	c := release.Config{
		Root: ".", Components: images.Components(), Plugin: krew.Package,
		Progress: os.Stdout, Password: []byte(os.Getenv("COSIGN_PASSWORD")),
	}
	flag.StringVar(&c.Version, "version", "", "version, such as v1.2.3")
	flag.StringVar(&c.Out, "o", "_output/release", "directory of releases")
	flag.StringVar(&c.Registry, "registry", "",
		"registry and path of images and chart, such as ghcr.io/kubeslot (default: none)")
	flag.BoolVar(&c.Push, "push", true,
		"send images and chart to the registry, if there is one, with the credentials of docker login")
	flag.BoolVar(&c.Insecure, "insecure", false, "the registry has no TLS")
	flag.StringVar(&c.Key, "key", "", "file of the releaser's private key, ECDSA on P-256; "+
		"one of cosign is decrypted with the variable COSIGN_PASSWORD (default: do not sign)")
	flag.StringVar(&c.Builder, "builder", release.ByHand, "who makes the release, as a URI, for the provenance")
	flag.StringVar(&c.Repository, "repository", release.Repository, "URL of the source, and of its releases")
	flag.StringVar(&c.LDFlags, "ldflags", "", "further flags of the linker")
	architectures := flag.String("arch", "amd64,arm64", "architectures of programs and images for Linux")
	set := flag.Bool("set", false, "write the version into the tree, and make no release")
	flag.Parse()
	c.Architectures = strings.Split(*architectures, ",")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := error(nil)
	if *set {
		err = release.SetVersion(c.Root, c.Version)
	} else {
		err = release.Make(ctx, c)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}
