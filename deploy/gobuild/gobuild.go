// Package gobuild builds Kubeslot's programs as they are published: without paths of the
// machine, without debug information, and with their version. Equal sources and an equal Go
// make an equal program.
package gobuild

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
)

// Program is a program and what it is built for.
type Program struct {
	// Root is the folder of the repository, and Package the program's in it, as ./kubecri/cmd/kubecri.
	Root, Package string
	// OS and Architecture are a GOOS and a GOARCH.
	OS, Architecture string
	// Version and Revision are of Kubeslot: a tag, and a commit or "".
	Version, Revision string
	// LDFlags are further flags of the linker.
	LDFlags string
	// Flags are further ones of go build, and Env further variables. The program is static
	// where Env does not set CGO_ENABLED.
	Flags, Env []string
}

// CompilerFlags are the -gcflags of the last GOFLAGS in env, so that what was compiled for the
// caller is not compiled again. If it has none, the compiler optimizes, and leaves out DWARF.
func CompilerFlags(env []string) string {
	flags := "-gcflags=all=-dwarf=false"
	for _, variable := range env {
		if value, ok := strings.CutPrefix(variable, "GOFLAGS="); ok {
			flags = "-gcflags=all=-dwarf=false"
			for _, m := range compilerFlags.FindAllStringSubmatch(value, -1) {
				flags = m[1] + m[2]
			}
		}
	}
	return flags
}

// compilerFlags are -gcflags in GOFLAGS, in quotes if there are spaces in them.
var compilerFlags = regexp.MustCompile(`'(-gcflags=[^']*)'|(-gcflags=[^\s']+)`)

// Build writes the program to the file out.
func (p Program) Build(ctx context.Context, out string) error {
	const version = "github.com/kubeslot/kubeslot/version"
	ldflags := "-s -w " + p.LDFlags + " -X " + version + ".version=" + p.Version
	if p.Revision != "" {
		ldflags += " -X " + version + ".commit=" + p.Revision
	}
	// The Makefile's flags, so that what was compiled for it is not compiled again. On Linux
	// net and os/user are with these tags the same with cgo and without it; the resolver of
	// macOS would not be asked.
	tags := ""
	if p.OS == "linux" {
		tags = "netgo,osusergo"
	}
	env := append(append(os.Environ(), "CGO_ENABLED=0", "GOOS="+p.OS, "GOARCH="+p.Architecture), p.Env...)
	args := []string{
		"build", "-trimpath", "-buildvcs=false", CompilerFlags(env),
		"-tags=" + tags, "-ldflags=" + ldflags, "-o", out,
	}
	cmd := exec.CommandContext(ctx, "go", append(append(args, p.Flags...), p.Package)...)
	cmd.Dir, cmd.Env = p.Root, env
	if said, err := cmd.CombinedOutput(); err != nil {
		on := p.Architecture
		if p.OS != "linux" {
			on = p.OS + "/" + on
		}
		return fmt.Errorf("build %s for %s: %w\n%s", p.Package, on, err, strings.TrimSpace(string(said)))
	}
	return nil
}
