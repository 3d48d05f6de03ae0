package images

import (
	"bytes"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/kubeslot/kubeslot/deploy/archive"
)

// Program is a program to be put into an image.
type Program struct {
	// Name is the file's in the image, /<Name>, which is its entry point.
	Name string
	// Version is Kubeslot's, and Created the time of the SBOM; 1970 when it is zero.
	Version string
	Created time.Time
	// Binary is the program, for linux and the Architecture, as in GOARCH.
	Binary       []byte
	Architecture string
	// User runs it, as uid or uid:gid; root when empty.
	User string
	// Labels are put on the image, and Annotations on its manifest.
	Labels, Annotations map[string]string
	// Libraries are what a program that is not static is linked with, and Plugins what it
	// loads. LibC is their C library's version, for the list of modules.
	Libraries, Plugins []archive.File
	LibC               string
}

// SBOMFolder is where in an image the list of its modules is, as SPDX 2.3 JSON.
const SBOMFolder = "/usr/share/sbom"

// Image returns the program's image.
func Image(p Program) (v1.Image, error) {
	bill, err := SBOM(p)
	if err != nil {
		return nil, err
	}
	image := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	image = mutate.ConfigMediaType(image, types.OCIConfigJSON)
	// What changes together has a layer, and what changes seldom comes first.
	for _, files := range [][]archive.File{
		p.Libraries,
		p.Plugins,
		{{Name: "/" + p.Name, Mode: 0o755, Data: p.Binary}},
		{{Name: path.Join(SBOMFolder, p.Name+".spdx.json"), Mode: 0o644, Data: bill}},
	} {
		if len(files) == 0 {
			continue
		}
		layer, err := layer(files)
		if err != nil {
			return nil, err
		}
		if image, err = mutate.AppendLayers(image, layer); err != nil {
			return nil, err
		}
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", p.Architecture
	if p.Architecture == "arm64" {
		config.Variant = "v8"
	}
	config.Config = v1.Config{Entrypoint: []string{"/" + p.Name}, Env: []string{"PATH=/"}, User: p.User, Labels: p.Labels}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return nil, err
	}
	return mutate.Annotations(image, p.Annotations).(v1.Image), nil
}

// Index returns an index of images, one an architecture, ordered by that.
func Index(images []v1.Image, annotations map[string]string) (v1.ImageIndex, error) {
	type entry struct {
		image    v1.Image
		platform *v1.Platform
	}
	var entries []entry
	for _, image := range images {
		config, err := image.ConfigFile()
		if err != nil {
			return nil, err
		}
		entries = append(entries, entry{image, config.Platform()})
	}
	slices.SortFunc(entries, func(a, b entry) int {
		return strings.Compare(a.platform.Architecture, b.platform.Architecture)
	})
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, e := range entries {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: e.image, Descriptor: v1.Descriptor{Platform: e.platform}})
	}
	return mutate.Annotations(index, annotations).(v1.ImageIndex), nil
}

func layer(files []archive.File) (v1.Layer, error) {
	var packed bytes.Buffer
	if err := archive.Tar(&packed, files); err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(packed.Bytes())), nil }
	return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer))
}
