package images

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/kubeslot/kubeslot/deploy/gobuild"
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
	// ImageOnly is set when the program is of no use outside of its image.
	ImageOnly bool
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
		{Name: "kubeslot-ui", Package: "./kubectl-kubeslot/cmd/kubeslot-ui", User: nobody,
			Title: "Page of devices and slots, for users with a token"},
		{Name: "chart-hooks", Package: "./deploy/helm/cmd/chart-hooks", User: nobody, Title: "What the Helm chart runs for helm test and helm uninstall", ImageOnly: true},
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
	// Env are further variables of go build.
	Env []string
	// Created is the time that SBOMs have; 1970 when it is zero.
	Created time.Time
}

// Build builds the component, static, for each architecture and returns the index of the
// images. work is a folder, in which the programs stay as ProgramFiles.
func Build(ctx context.Context, s Source, c Component, work string) (v1.ImageIndex, error) {
	annotations := s.annotations(c)
	var all []v1.Image
	for _, architecture := range s.Architectures {
		program := ProgramFile(work, c, architecture)
		if err := s.program(c.Package, architecture).Build(ctx, program); err != nil {
			return nil, err
		}
		image, err := imageOf(program, Program{
			Name: filepath.Base(c.Package), Version: s.Version, Created: s.Created, Architecture: architecture,
			User: c.User, Labels: annotations, Annotations: annotations,
		})
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

// program is the component's program, or another of the package, for an architecture.
func (s Source) program(pkg, architecture string) gobuild.Program {
	return gobuild.Program{
		Root: s.Root, Package: pkg, OS: "linux", Architecture: architecture,
		Version: s.Version, Revision: s.Revision, LDFlags: s.LDFlags, Env: s.Env,
	}
}

// ProgramFile is where Build leaves a component's program for an architecture.
func ProgramFile(work string, c Component, architecture string) string {
	return filepath.Join(work, c.Name+"-"+architecture)
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
