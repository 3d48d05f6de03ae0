package images

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

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
}

// nobody is the user that distroless images call nonroot.
const nobody = "65532:65532"

// Components are all that there are. The discovery handlers have the names of Akri's
// images, whose place they can take.
func Components() []Component {
	all := []Component{
		{"kube-scheduler", "./kube-scheduler/cmd/kube-scheduler", nobody, "Kubernetes scheduler that gives pods device slots"},
		{"kubecri", "./kubecri/cmd/kubecri", "", "Node agent that discovers devices and puts them into containers"},
		{"controller", "./controller/cmd/controller", nobody, "Instances, brokers and services of Kubeslot"},
	}
	for _, handler := range []string{"debug-echo", "mdns", "onvif", "opcua", "udev", "usb"} {
		name := handler + "-discovery"
		all = append(all, Component{name, "./discovery/cmd/" + name, "", "Discovery handler " + handler})
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

// Build builds the component for each architecture and returns the index of the
// images. work is an empty folder.
func Build(ctx context.Context, s Source, c Component, work string) (v1.ImageIndex, error) {
	annotations := map[string]string{
		"org.opencontainers.image.title":    c.Name,
		"org.opencontainers.image.version":  s.Version,
		"org.opencontainers.image.revision": s.Revision,
		"org.opencontainers.image.licenses": "Apache-2.0",

		"org.opencontainers.image.description": c.Title,
	}
	var all []v1.Image
	for _, architecture := range s.Architectures {
		program := filepath.Join(work, c.Name+"-"+architecture)
		cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags="+strings.TrimSpace("-s -w "+s.LDFlags), "-o", program, c.Package)
		cmd.Dir = s.Root
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+architecture)
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build %s for %s: %w\n%s", c.Name, architecture, err, out)
		}
		binary, err := os.ReadFile(program)
		if err != nil {
			return nil, err
		}
		image, err := Image(Program{Name: filepath.Base(c.Package), Binary: binary, Architecture: architecture, User: c.User, Labels: annotations, Annotations: annotations})
		if err != nil {
			return nil, fmt.Errorf("image of %s for %s: %w", c.Name, architecture, err)
		}
		all = append(all, image)
	}
	return Index(all, annotations)
}
