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

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/kubeslot/kubeslot/deploy/images"
)

// imageList lists the images that were made, as name:tag@digest, one a line.
const imageList = "images.txt"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("images", flag.ContinueOnError)
	registry := flags.String("registry", "kubeslot.local", "registry and path that the images are named by, such as ghcr.io/kubeslot")
	version := flags.String("version", "", "version, which is the images' tag (default: git describe)")
	out := flags.String("o", "_output/images", "directory for the archives")
	push := flags.Bool("push", false, "send the images to the registry, with the credentials of docker login, instead of writing archives")
	insecure := flags.Bool("insecure", false, "the registry has no TLS")
	only := flags.String("only", "", "names of components, with commas between them (default: all)")
	architectures := flags.String("arch", "amd64,arm64", "architectures")
	plugins := flags.Bool("plugins", false, "build in addition, with the tag <version>"+images.PluginsSuffix+", the images whose programs load .so files")
	ldflags := flags.String("ldflags", "", "further flags of the linker")
	if err := flags.Parse(args); err != nil {
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
	refOf := func(c images.Component) string { return *registry + "/" + c.Name + ":" + source.Version }
	if *push {
		var refs []string
		for _, c := range components {
			refs = append(refs, refOf(c))
		}
		if err := images.MayPush(ctx, refs, *insecure); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(*out, 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp(*out, ".build-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	to := target{push: *push, insecure: *insecure}
	var listed strings.Builder
	put := func(index v1.ImageIndex) error {
		digest, err := to.put(ctx, index)
		fmt.Fprintf(&listed, "%s@%s\n", to.ref, digest)
		return err
	}
	for i, c := range components {
		to.archive, to.ref = filepath.Join(*out, c.Name+".tar"), refOf(c)
		fmt.Printf("[%d/%d] %s\n", i+1, len(components), to.ref)
		index, err := images.Build(ctx, source, c, work)
		if err != nil {
			return err
		}
		if err := put(index); err != nil {
			return err
		}
		if !*plugins || c.PluginFolder == "" {
			continue
		}
		to.archive, to.ref = filepath.Join(*out, c.Name+images.PluginsSuffix+".tar"), to.ref+images.PluginsSuffix
		fmt.Printf("[%d/%d] %s\n", i+1, len(components), to.ref)
		index, leftOut, err := images.BuildWithPlugins(ctx, source, c, work)
		if err != nil {
			return err
		}
		for _, l := range leftOut {
			fmt.Println("      without", l)
		}
		if err := put(index); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(*out, imageList), []byte(listed.String()), 0o644)
}

// target is where an image goes: an archive, or the registry.
type target struct {
	ref, archive   string
	push, insecure bool
}

// put returns the image's digest.
func (t target) put(ctx context.Context, index v1.ImageIndex) (v1.Hash, error) {
	digest, err := index.Digest()
	if err != nil {
		return digest, err
	}
	if !t.push {
		if err := images.WriteArchive(t.archive, t.ref, index); err != nil {
			return digest, fmt.Errorf("write %s: %w", t.archive, err)
		}
		fmt.Printf("      %s, %s\n", t.archive, digest)
		return digest, nil
	}
	if err := images.Push(ctx, t.ref, t.insecure, index); err != nil {
		return digest, err
	}
	fmt.Printf("      pushed as %s\n", digest)
	return digest, nil
}

// git returns what it prints; "unknown" outside a repository.
func git(args ...string) string {
	out, err := exec.Command("git", args...).Output()
	if text := strings.TrimSpace(string(out)); err == nil && text != "" {
		return text
	}
	return "unknown"
}
