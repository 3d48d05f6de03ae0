package build

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// Module is programs of a module graph of its own, which only some tests need: of other
// versions than ours, or with many dependencies. They are built when a test asks for them.
type Module struct {
	// Dir is the directory in test/cluster/upstream whose go.mod pins the module.
	Dir string
	// Module's version in that go.mod names the build.
	Module string
	// Packages are the programs' main packages.
	Packages []string
	// Name is the build's, in the cache; Dir by default.
	Name string
	// Tags are build tags. LDFlags may hold %s for the version.
	Tags, LDFlags string
}

// Build returns the directory of the programs, each named as its package. They stay in the
// user's cache, and are built if that has not been done; out gets a line then. Any number of
// processes may do so at once: one builds, and the directory appears complete or not at all.
func (m Module) Build(ctx context.Context, root string, out io.Writer) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("cache for built programs: %w", err)
	}
	source := filepath.Join(root, "test/cluster/upstream", m.Dir)
	goMod, err := os.ReadFile(filepath.Join(source, "go.mod"))
	if err != nil {
		return "", err
	}
	goSum, err := os.ReadFile(filepath.Join(source, "go.sum"))
	if err != nil {
		return "", err
	}
	version := RequiredVersion(goMod, m.Module)
	if version == "" {
		return "", fmt.Errorf("%s/go.mod does not require %s", source, m.Module)
	}
	flags := m.flags(version)
	key := sha256.Sum256(bytes.Join([][]byte{goMod, goSum, []byte(strings.Join(append(flags, m.Packages...), " ")),
		[]byte(runtime.Version() + "/" + runtime.GOARCH)}, []byte{'\n'}))
	dir := filepath.Join(cache, "kubeslot", "bin", fmt.Sprintf("%s-%s-%.4x", cmp.Or(m.Name, m.Dir), version, key[:]))
	if isDir(dir) {
		return dir, nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", err
	}
	unlock, err := Lock(ctx, dir+".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	if isDir(dir) {
		return dir, nil
	}
	stale, _ := filepath.Glob(dir + ".tmp-*")
	for _, left := range stale {
		os.RemoveAll(left)
	}
	temp, err := os.MkdirTemp(filepath.Dir(dir), filepath.Base(dir)+".tmp-*")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(temp)
	fmt.Fprintf(out, "building %s %s, once for %s\n", cmp.Or(m.Name, m.Dir), version, dir)
	if err := goBuild(ctx, source, []string{"CGO_ENABLED=0"}, out, append(flags, "-o", temp+"/"), m.Packages); err != nil {
		return "", fmt.Errorf("build %s %s: %w", m.Dir, version, err)
	}
	if err := os.Chmod(temp, 0o755); err != nil {
		return "", err
	}
	return dir, os.Rename(temp, dir)
}

// flags decide what the outcome of a build is, with go.mod and go.sum.
func (m Module) flags(version string) []string {
	ldflags := "-s -w"
	if strings.Contains(m.LDFlags, "%") {
		ldflags += " " + fmt.Sprintf(m.LDFlags, version)
	}
	flags := append(Flags(), "-ldflags="+ldflags)
	if m.Tags != "" {
		flags = append(flags, "-tags="+tags+","+m.Tags)
	}
	return flags
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
