package release

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/kubeslot/kubeslot/deploy/archive"
	"github.com/kubeslot/kubeslot/deploy/gobuild"
	"github.com/kubeslot/kubeslot/deploy/images"
	"github.com/kubeslot/kubeslot/deploy/krew"
	"github.com/kubeslot/kubeslot/deploy/sbom"
)

// image is one of the release's.
type image struct {
	component, ref string
	digest         v1.Hash
	index          v1.ImageIndex
}

// buildComponents builds the programs for Linux, and their images.
func (r *release) buildComponents(ctx context.Context) error {
	license, err := r.license()
	if err != nil {
		return err
	}
	source := images.Source{
		Root: r.Root, Version: r.Version, Revision: r.source.commit, LDFlags: r.LDFlags,
		Architectures: r.Architectures, Env: r.environment(), Created: r.created(),
	}
	for i, c := range r.Components {
		r.say("[%d/%d] %s", i+1, len(r.Components), c.Name)
		index, err := images.Build(ctx, source, c, r.work)
		if err != nil {
			return err
		}
		var programs [][]byte
		for _, architecture := range r.Architectures {
			file := images.ProgramFile(r.work, c, architecture)
			program, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			if err := os.Remove(file); err != nil {
				return err
			}
			programs = append(programs, program)
			if err := r.materials.add(program); err != nil {
				return err
			}
			if c.ImageOnly {
				continue
			}
			if err := r.writeProgram(c.Name, architecture, program, license); err != nil {
				return err
			}
		}
		if err := r.writeImage(c, index, programs); err != nil {
			return err
		}
	}
	return nil
}

// writeProgram adds <name>_linux_<architecture>.tar.gz, as krew's archives are.
func (r *release) writeProgram(name, architecture string, program, license []byte) error {
	var packed bytes.Buffer
	files := []archive.File{{Name: "LICENSE", Mode: 0o644, Data: license}, {Name: name, Mode: 0o755, Data: program}}
	if err := archive.TarGz(&packed, files); err != nil {
		return err
	}
	return r.writeWithSBOM(fmt.Sprintf("%s_linux_%s.tar.gz", name, architecture), packed.Bytes(), r.contains(program))
}

// contains lists the modules of programs that a file has.
func (r *release) contains(programs ...[]byte) func(*sbom.Document, string) error {
	return func(d *sbom.Document, file string) error {
		for _, p := range programs {
			if _, err := d.AddProgram(file, "CONTAINS", r.Version, p); err != nil {
				return err
			}
		}
		return nil
	}
}

// writeImage adds <component>-image.tar, and keeps the image on disk until it is pushed.
func (r *release) writeImage(c images.Component, index v1.ImageIndex, programs [][]byte) error {
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	folder := filepath.Join(r.work, "image-"+c.Name)
	stored, err := layout.Write(folder, mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: index}))
	if err != nil {
		return err
	}
	all, err := stored.ImageIndex()
	if err != nil {
		return err
	}
	if index, err = all.ImageIndex(digest); err != nil {
		return err
	}
	r.images = append(r.images, image{c.Name, r.imageRef(c), digest, index})
	name := c.Name + "-image.tar"
	file := filepath.Join(r.dir, name)
	if err := images.WriteArchive(file, r.imageRef(c), index); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	sum, err := sumOf(file)
	if err != nil {
		return err
	}
	r.files = append(r.files, File{name, sum})
	return r.writeSBOM(name, sum, func(d *sbom.Document, file string) error {
		image := d.Add(file, "CONTAINS", ociPackage(c.Name, digest))
		return r.contains(programs...)(d, image)
	})
}

// ociPackage is an image, or a chart in a registry, as others name it.
func ociPackage(name string, digest v1.Hash) sbom.Package {
	version := digest.String()
	return sbom.Package{Name: name, Version: version, External: []sbom.External{sbom.Purl("oci", name, version)}}
}

// buildPlugin builds kubectl-kubeslot for all platforms, and krew's manifest.
func (r *release) buildPlugin(ctx context.Context) error {
	if r.Plugin == "" {
		return nil
	}
	license, err := r.license()
	if err != nil {
		return err
	}
	published := krew.Release{
		Version: r.Version, URL: r.Repository + "/releases/download/" + r.Version, Homepage: r.Repository,
		Sums: map[krew.Platform]string{},
	}
	build := gobuild.Program{
		Root: r.Root, Package: r.Plugin, Version: r.Version, Revision: r.source.commit,
		LDFlags: r.LDFlags, Env: r.environment(),
	}
	for i, p := range krew.Platforms {
		r.say("[%d/%d] %s", i+1, len(krew.Platforms), p.Archive())
		program, packed, err := krew.Build(ctx, p, build, r.work, license)
		if err != nil {
			return err
		}
		if err := r.materials.add(program); err != nil {
			return err
		}
		published.Sums[p] = krew.Sum(packed)
		if err := r.writeWithSBOM(p.Archive(), packed, r.contains(program)); err != nil {
			return err
		}
	}
	manifest, err := krew.Manifest(published)
	if err != nil {
		return err
	}
	return r.write(krew.Name+".yaml", manifest)
}

func (r *release) license() ([]byte, error) { return os.ReadFile(filepath.Join(r.Root, "LICENSE")) }
