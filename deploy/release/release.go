// Package release makes a release of Kubeslot: programs, images, the Helm chart, krew's
// manifest, and what a user checks them by: SBOMs, checksums, provenance and signatures.
// Equal commits, parameters and versions of Go make equal files, wherever the clone is.
package release

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/kubeslot/kubeslot/deploy/images"
	"github.com/kubeslot/kubeslot/deploy/krew"
	"github.com/kubeslot/kubeslot/deploy/sbom"
)

// Config is what a release is made of.
type Config struct {
	// Root is the folder of the repository, a clone without changes.
	Root string
	// Out is the folder of releases: one is in <Out>/<Version>, whole or not at all.
	Out string
	// Version is a semantic version that begins with v.
	Version string
	// Registry is the registry and path that images and chart are named by, and sent to if Push
	// is set; it has no TLS if it is Insecure. When it is empty nothing is sent.
	Registry       string
	Push, Insecure bool
	// Key is the file of the releaser's private key, and Password what it is encrypted with.
	// Without it nothing is signed.
	Key      string
	Password []byte
	// Builder names who makes the release, as a URI, for the provenance.
	Builder string
	// Repository is the URL of the source, and where releases are published.
	Repository string
	// LDFlags are further flags of the linker.
	LDFlags string
	// Components are the programs with an image, for Architectures of Linux.
	Components    []images.Component
	Architectures []string
	// Plugin is the Go package of kubectl-kubeslot, for krew.Platforms; "" for none.
	Plugin string
	// Progress gets a line for each step.
	Progress io.Writer
}

const (
	// ByHand is the builder of a release that a person makes.
	ByHand = "https://github.com/kubeslot/kubeslot/blob/main/docs/release.md#by-hand"
	// Repository is Kubeslot's own.
	Repository = "https://github.com/kubeslot/kubeslot"
	// unpublished names images that are sent to no registry, as `make images` does.
	unpublished = "kubeslot.local"
)

// release is one that is being made.
type release struct {
	Config
	source source
	key    *key // nil without one
	// dir is the folder that becomes the release, and work one that goes when it is done.
	dir, work string
	files     []File
	images    []image
	chart     chart
	materials materials
}

// File is one of a release, with its SHA-256 in hex.
type File struct{ Name, SHA256 string }

// Make makes the release. It writes nothing unless version, tree, key and registry are as
// they have to be.
func Make(ctx context.Context, c Config) error {
	r := &release{Config: c, materials: materials{}}
	if err := r.check(ctx); err != nil {
		return err
	}
	if err := os.MkdirAll(c.Out, 0o755); err != nil {
		return err
	}
	temporary, err := os.MkdirTemp(c.Out, "."+c.Version+"-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temporary)
	r.dir, r.work = filepath.Join(temporary, "release"), filepath.Join(temporary, "work")
	for _, dir := range []string{r.dir, r.work} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	steps := []func(context.Context) error{r.buildComponents, r.buildPlugin, r.packChart, r.listImages, r.attest}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	final := filepath.Join(c.Out, c.Version)
	if err := os.RemoveAll(final); err != nil {
		return err
	}
	if err := os.Rename(r.dir, final); err != nil {
		return err
	}
	r.say("%s: %d files", final, len(r.files))
	if err := r.push(ctx); err != nil {
		return fmt.Errorf("%s is complete, and not pushed: %w", final, err)
	}
	if r.key == nil {
		r.say("NOT SIGNED: no KEY was given. Users cannot tell these files from somebody else's.")
	} else {
		r.say("signed by the key whose public half is\n%s", r.key.public)
	}
	return nil
}

// check finds what is wrong before minutes are spent on building.
func (r *release) check(ctx context.Context) error {
	if err := checkVersion(r.Version); err != nil {
		return err
	}
	var err error
	if r.source, err = readSource(ctx, r.Root, r.Version); err != nil {
		return err
	}
	if err := CheckVersions(r.Root, r.Version); err != nil {
		return err
	}
	if r.Key != "" {
		if r.key, err = readKey(r.Key, r.Password); err != nil {
			return err
		}
	}
	if r.Registry == "" || !r.Push {
		return nil
	}
	refs := []string{r.chartRef()}
	for _, c := range r.Components {
		refs = append(refs, r.imageRef(c))
	}
	return images.MayPush(ctx, refs, r.Insecure)
}

func (r *release) say(format string, args ...any) { fmt.Fprintf(r.Progress, format+"\n", args...) }

// environment of go build has a value for each variable that changes what a program is, and
// that people set.
func (r *release) environment() []string {
	return []string{
		"GOFLAGS=-trimpath", "GOWORK=auto", "GOAMD64=v1", "GOARM64=v8.0",
		fmt.Sprintf("SOURCE_DATE_EPOCH=%d", r.source.time.Unix()),
	}
}

func (r *release) registry() string {
	if r.Registry == "" {
		return unpublished
	}
	return r.Registry
}

func (r *release) imageRef(c images.Component) string {
	return r.registry() + "/" + c.Name + ":" + r.Version
}

func (r *release) created() time.Time { return r.source.time }

// write adds a file to the release.
func (r *release) write(name string, data []byte) error {
	r.files = append(r.files, File{name, krew.Sum(data)})
	return os.WriteFile(filepath.Join(r.dir, name), data, 0o644)
}

// writeWithSBOM adds a file, and the list of what it is made of, which fill completes for the
// file's ID.
func (r *release) writeWithSBOM(name string, data []byte, fill func(d *sbom.Document, file string) error) error {
	if err := r.write(name, data); err != nil {
		return err
	}
	return r.writeSBOM(name, krew.Sum(data), fill)
}

func (r *release) writeSBOM(name, sum string, fill func(d *sbom.Document, file string) error) error {
	bill := sbom.New(name, r.created())
	if err := fill(bill, bill.AddArtifact(name, r.Version, sum)); err != nil {
		return fmt.Errorf("SBOM of %s: %w", name, err)
	}
	text, err := bill.JSON()
	if err != nil {
		return err
	}
	return r.write(name+".spdx.json", text)
}
