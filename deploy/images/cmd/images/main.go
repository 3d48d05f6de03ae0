// Command images builds the container images of Kubeslot, as OCI archives or into a
// registry. `make images` and `make push` run it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/kubeslot/kubeslot/deploy/images"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	flags := flag.NewFlagSet("images", flag.ContinueOnError)
	registry := flags.String("registry", "kubeslot.local", "registry and folder that the images are named by, such as ghcr.io/kubeslot")
	version := flags.String("version", "", "version, which is the images' tag (default: git describe)")
	out := flags.String("o", "_output/images", "folder for the archives")
	push := flags.Bool("push", false, "send the images to the registry, with the credentials of docker login, instead of writing archives")
	insecure := flags.Bool("insecure", false, "the registry has no TLS")
	only := flags.String("only", "", "names of components, with commas between them (default: all)")
	architectures := flags.String("arch", "amd64,arm64", "architectures")
	ldflags := flags.String("ldflags", "", "further flags of the linker")
	if err := flags.Parse(os.Args[1:]); err != nil {
		return err
	}
	components := images.Components()
	if *only != "" {
		names := strings.Split(*only, ",")
		for _, n := range names {
			if !slices.ContainsFunc(components, func(c images.Component) bool { return c.Name == n }) {
				return fmt.Errorf("there is no component %q", n)
			}
		}
		components = slices.DeleteFunc(components, func(c images.Component) bool { return !slices.Contains(names, c.Name) })
	}
	source := images.Source{Root: ".", Version: *version, LDFlags: *ldflags, Architectures: strings.Split(*architectures, ",")}
	if source.Version == "" {
		source.Version = git("describe", "--tags", "--always", "--dirty")
	}
	source.Revision = git("rev-parse", "HEAD")
	if err := os.MkdirAll(*out, 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp(*out, ".build-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	for i, c := range components {
		ref := *registry + "/" + c.Name + ":" + source.Version
		fmt.Printf("[%d/%d] %s\n", i+1, len(components), ref)
		index, err := images.Build(ctx, source, c, work)
		if err != nil {
			return err
		}
		digest, err := index.Digest()
		if err != nil {
			return err
		}
		if *push {
			var options []name.Option
			if *insecure {
				options = append(options, name.Insecure)
			}
			to, err := name.ParseReference(ref, options...)
			if err != nil {
				return err
			}
			if err := remote.WriteIndex(to, index, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
				return fmt.Errorf("push %s: %w", ref, err)
			}
			fmt.Printf("      pushed as %s\n", digest)
			continue
		}
		archive := filepath.Join(*out, c.Name+".tar")
		if err := images.WriteArchive(archive, ref, index); err != nil {
			return fmt.Errorf("write %s: %w", archive, err)
		}
		fmt.Printf("      %s, %s\n", archive, digest)
	}
	return nil
}

// git returns what it prints; "unknown" outside a repository.
func git(args ...string) string {
	out, err := exec.Command("git", args...).Output()
	if text := strings.TrimSpace(string(out)); err == nil && text != "" {
		return text
	}
	return "unknown"
}
