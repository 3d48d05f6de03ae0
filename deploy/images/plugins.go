package images

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/kubeslot/kubeslot/deploy/archive"
	"github.com/kubeslot/kubeslot/deploy/gobuild"
)

// PluginsSuffix ends the tag of an image whose program loads plugins.
const PluginsSuffix = "-plugins"

// BuildWithPlugins builds the component so that it loads plugins (.so files), and its own
// plugins: linked with this machine's C library, which comes with it. An architecture for
// which there is no C compiler is left out. work is an empty folder.
func BuildWithPlugins(ctx context.Context, s Source, c Component, work string) (index v1.ImageIndex, leftOut []string, err error) {
	annotations := s.annotations(c)
	var all []v1.Image
	for _, architecture := range s.Architectures {
		cc := compiler(architecture)
		if _, err := exec.LookPath(cc); err != nil {
			leftOut = append(leftOut, fmt.Sprintf("%s for want of %s", architecture, cc))
			continue
		}
		p := Program{
			Name: filepath.Base(c.Package), Version: s.Version, Created: s.Created, Architecture: architecture,
			User: c.User, Labels: annotations, Annotations: annotations,
		}
		program := filepath.Join(work, c.Name+PluginsSuffix+"-"+architecture)
		linkedWith := func(pkg string, flags ...string) gobuild.Program {
			b := s.program(pkg, architecture)
			b.Flags, b.Env = flags, append(slices.Clone(s.Env), "CGO_ENABLED=1", "CC="+cc)
			return b
		}
		if err := linkedWith(c.Package).Build(ctx, program); err != nil {
			return nil, nil, err
		}
		linked := []string{program}
		for _, pkg := range c.Plugins {
			// Both halves of a plugin have its name.
			file := filepath.Join(work, filepath.Base(filepath.Dir(pkg))+"-"+filepath.Base(pkg)+"-"+architecture+".so")
			if err := linkedWith(pkg, "-buildmode=plugin").Build(ctx, file); err != nil {
				return nil, nil, err
			}
			content, err := os.ReadFile(file)
			if err != nil {
				return nil, nil, err
			}
			p.Plugins = append(p.Plugins,
				archive.File{Name: c.PluginFolder + "/" + filepath.Base(filepath.Dir(pkg)) + ".so",
					Mode: 0o644, Data: content})
			linked = append(linked, file)
		}
		if p.Libraries, p.LibC, err = libraries(ctx, cc, linked); err != nil {
			return nil, nil, fmt.Errorf("libraries of %s for %s: %w", c.Name, architecture, err)
		}
		image, err := imageOf(program, p)
		if err != nil {
			return nil, nil, err
		}
		all = append(all, image)
	}
	if len(all) == 0 {
		return nil, leftOut, fmt.Errorf("no C compiler for any of %s: %s", strings.Join(s.Architectures, ", "), strings.Join(leftOut, ", "))
	}
	index, err = Index(all, annotations)
	return index, leftOut, err
}

// compiler is the C compiler for an architecture, by the names that Debian gives them.
func compiler(architecture string) string {
	if architecture == runtime.GOARCH {
		return "gcc"
	}
	machine, ok := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[architecture]
	if !ok {
		machine = architecture
	}
	return machine + "-linux-gnu-gcc"
}

// libraries returns the shared libraries that the programs need, with those that these
// need, and the program interpreter, where programs and the interpreter look for them. They
// are what the compiler links with.
func libraries(ctx context.Context, cc string, programs []string) (files []archive.File, libc string, err error) {
	seen := map[string]bool{}
	for queue := slices.Clone(programs); len(queue) > 0; queue = queue[1:] {
		needed, interpreter, err := dependencies(queue[0])
		if err != nil {
			return nil, "", err
		}
		if interpreter != "" {
			needed = append(needed, filepath.Base(interpreter))
		}
		for _, name := range needed {
			if seen[name] {
				continue
			}
			seen[name] = true
			out, err := exec.CommandContext(ctx, cc, "-print-file-name="+name).Output()
			if err != nil {
				return nil, "", fmt.Errorf("%s -print-file-name=%s: %w", cc, name, err)
			}
			path := strings.TrimSpace(string(out))
			if !filepath.IsAbs(path) {
				return nil, "", fmt.Errorf("%s needs %s, which %s does not know", filepath.Base(queue[0]), name, cc)
			}
			content, err := os.ReadFile(path)
			if err != nil {
				return nil, "", err
			}
			// Interpreters look into /lib or /lib64, as their distribution has it.
			files = append(files, archive.File{Name: "/lib/" + name, Mode: 0o755, Data: content},
				archive.File{Name: "/lib64/" + name, Mode: 0o777, Link: "../lib/" + name})
			if name == "libc.so.6" {
				if libc, err = libcVersion(content); err != nil {
					return nil, "", err
				}
			}
			queue = append(queue, path)
		}
	}
	slices.SortFunc(files, func(a, b archive.File) int { return strings.Compare(a.Name, b.Name) })
	return files, libc, nil
}

// dependencies are what a program or library names to be loaded with it.
func dependencies(path string) (libraries []string, interpreter string, err error) {
	f, err := elf.Open(path)
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", path, err)
	}
	defer f.Close()
	if libraries, err = f.ImportedLibraries(); err != nil {
		return nil, "", fmt.Errorf("%s: %w", path, err)
	}
	if section := f.Section(".interp"); section != nil {
		content, err := section.Data()
		if err != nil {
			return nil, "", fmt.Errorf("%s: %w", path, err)
		}
		interpreter = string(bytes.TrimRight(content, "\x00"))
	}
	return libraries, interpreter, nil
}

// libcVersion is the distribution's, such as "2.36-9+deb12u14", or glibc's own.
func libcVersion(content []byte) (string, error) {
	m := regexp.MustCompile(`GNU C Library \((?:[^)]*GLIBC )?([^)]*)\)[^\x00]*? version ([0-9.]+[0-9])`).FindSubmatch(content)
	if m == nil {
		return "", errors.New("libc.so.6 is not glibc")
	}
	if bytes.HasPrefix(m[1], m[2]) {
		return string(m[1]), nil
	}
	return string(m[2]), nil
}
