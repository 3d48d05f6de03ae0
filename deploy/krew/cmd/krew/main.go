// Command krew builds kubectl-kubeslot for all platforms and packs it for krew:
//
//	go run ./deploy/krew/cmd/krew -version v0.2.0 -url https://example.com/kubeslot/v0.2.0
//
// It writes the archives, kubeslot.yaml and SHA256SUMS into -out.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"

	"github.com/kubeslot/kubeslot/deploy/gobuild"
	"github.com/kubeslot/kubeslot/deploy/krew"
)

func main() {
	out := flag.String("out", "_output/krew", "directory to write to")
	version := flag.String("version", "v0.0.0-dev", "Kubeslot's version")
	url := flag.String("url", "https://example.invalid/kubeslot", "where the archives will be published")
	homepage := flag.String("homepage", "https://github.com/kubeslot/kubeslot", "where people read more")
	ldflags := flag.String("ldflags", "", "further flags of the linker")
	only := flag.String("only", "", "one platform, such as linux/amd64, without a manifest")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *out, *ldflags, *only, krew.Release{Version: *version, URL: *url, Homepage: *homepage, Sums: map[krew.Platform]string{}}); err != nil {
		fmt.Fprintln(os.Stderr, "krew:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out, ldflags, only string, release krew.Release) error {
	license, err := os.ReadFile("LICENSE")
	if err != nil {
		return fmt.Errorf("%w: run it in the repository's directory", err)
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "kubeslot-krew-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	build := gobuild.Program{Root: ".", Package: krew.Package, Version: release.Version, LDFlags: ldflags}
	sums := ""
	for _, p := range krew.Platforms {
		if only != "" && only != p.OS+"/"+p.Arch {
			continue
		}
		_, archive, err := krew.Build(ctx, p, build, work, license)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(out, p.Archive()), archive, 0o644); err != nil {
			return err
		}
		release.Sums[p] = krew.Sum(archive)
		sums += release.Sums[p] + "  " + p.Archive() + "\n"
		fmt.Printf("%s: %.1f MB\n", p.Archive(), float64(len(archive))/1e6)
	}
	if sums == "" {
		return fmt.Errorf("no platform %q: there are %v", only, krew.Platforms)
	}
	if err := os.WriteFile(filepath.Join(out, "SHA256SUMS"), []byte(sums), 0o644); err != nil {
		return err
	}
	if only != "" {
		return nil
	}
	manifest, err := krew.Manifest(release)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(out, krew.Name+".yaml"), manifest, 0o644)
}
