package images

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Component is what an image is made for.
type Component struct {
	// Name is the image's, and Package the Go package of its program.
	Name, Package string
	// User runs it; see Program.User. What works on a node's sockets and devices is root.
	User string
	// Title is a line for people.
	Title string
	// Plugins are those of this repository that the program can load, from PluginFolder;
	// both are empty for a program that loads none.
	Plugins      []string
	PluginFolder string
}

// nobody is the user that distroless images call nonroot.
const nobody = "65532:65532"

// Components are all that there are. The discovery handlers have the names of Akri's
// images, whose place they can take.
func Components() []Component {
	all := []Component{
		{Name: "kube-scheduler", Package: "./kube-scheduler/cmd/kube-scheduler", User: nobody, Title: "Kubernetes scheduler that gives pods device slots",
			Plugins: []string{"./plugins/nvidiagpu/scheduler"}, PluginFolder: "/schedulerplugins"},
		{Name: "kubecri", Package: "./kubecri/cmd/kubecri", Title: "Node agent that discovers devices and puts them into containers",
			Plugins: []string{"./plugins/nvidiagpu/device"}, PluginFolder: "/usr/local/KubeExt/devices"},
		{Name: "controller", Package: "./controller/cmd/controller", User: nobody, Title: "Instances, brokers and services of Kubeslot"},
		{Name: "chart-hooks", Package: "./deploy/helm/cmd/chart-hooks", User: nobody, Title: "What the Helm chart runs for helm test and helm uninstall"},
	}
	for _, handler := range []string{"debug-echo", "mdns", "onvif", "opcua", "udev", "usb"} {
		name := handler + "-discovery"
		all = append(all, Component{Name: name, Package: "./discovery/cmd/" + name, Title: "Discovery handler " + handler})
	}
	return all
}

// Source is what images are built from.
type Source struct {
	// Root is the folder of the repository.
	Root string
	// Version and Revision are of Kubeslot: a tag, and a commit.
	Version, Revision string
	// LDFlags are further flags of the linker.
	LDFlags string
	// Architectures are GOARCHs.
	Architectures []string
}

// Build builds the component, static, for each architecture and returns the index of the
// images. work is an empty folder.
func Build(ctx context.Context, s Source, c Component, work string) (v1.ImageIndex, error) {
	annotations := s.annotations(c)
	var all []v1.Image
	for _, architecture := range s.Architectures {
		program := filepath.Join(work, c.Name+"-"+architecture)
		if err := s.build(ctx, program, c.Package, architecture, nil, "CGO_ENABLED=0"); err != nil {
			return nil, err
		}
		image, err := imageOf(program, Program{Name: filepath.Base(c.Package), Architecture: architecture, User: c.User, Labels: annotations, Annotations: annotations})
		if err != nil {
			return nil, err
		}
		all = append(all, image)
	}
	return Index(all, annotations)
}

func (s Source) annotations(c Component) map[string]string {
	return map[string]string{
		"org.opencontainers.image.title":    c.Name,
		"org.opencontainers.image.version":  s.Version,
		"org.opencontainers.image.revision": s.Revision,
		"org.opencontainers.image.licenses": "Apache-2.0",

		"org.opencontainers.image.description": c.Title,
	}
}

// build runs `go build` with flags and environment beside those of all builds.
func (s Source) build(ctx context.Context, out, pkg, architecture string, flags []string, env ...string) error {
	const version = "github.com/kubeslot/kubeslot/version"
	ldflags := fmt.Sprintf("-s -w %s -X %s.version=%s -X %s.commit=%s", s.LDFlags, version, s.Version, version, s.Revision)
	// The Makefile's flags, so that what was compiled for it is not compiled again: with the
	// tags net and os/user are the same with cgo and without it.
	args := append([]string{"build", "-trimpath", "-buildvcs=false", "-gcflags=all=-dwarf=false", "-tags=netgo,osusergo", "-ldflags=" + ldflags, "-o", out}, flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, pkg)...)
	cmd.Dir = s.Root
	cmd.Env = append(append(os.Environ(), "GOOS=linux", "GOARCH="+architecture), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s for %s: %w\n%s", pkg, architecture, err, out)
	}
	return nil
}

func imageOf(program string, p Program) (v1.Image, error) {
	var err error
	if p.Binary, err = os.ReadFile(program); err != nil {
		return nil, err
	}
	image, err := Image(p)
	if err != nil {
		return nil, fmt.Errorf("image of %s for %s: %w", p.Name, p.Architecture, err)
	}
	return image, nil
}
