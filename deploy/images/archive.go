package images

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/kubeslot/kubeslot/deploy/archive"
)

// WriteArchive writes an index as an OCI archive, under the name ref, such as
// "ghcr.io/kubeslot/kubecri:v0.1.0". `ctr images import`, `podman load` and `skopeo`
// read it. The file is there whole or not at all.
func WriteArchive(file, ref string, index v1.ImageIndex) error {
	reference, err := Reference(ref, false)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(filepath.Dir(file), ".oci-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	named := mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex), mutate.IndexAddendum{
		Add: index, Descriptor: v1.Descriptor{Annotations: map[string]string{
			"io.containerd.image.name":          ref,
			"org.opencontainers.image.ref.name": reference.Identifier(),
		}}})
	folder := filepath.Join(dir, "layout")
	if _, err := layout.Write(folder, named); err != nil {
		return err
	}
	next := filepath.Join(dir, "archive")
	if err := tarFolder(folder, next); err != nil {
		return err
	}
	return os.Rename(next, file)
}

// tarFolder writes the folder's files in the order of their names.
func tarFolder(folder, file string) error {
	var all []archive.File
	files := os.DirFS(folder)
	err := fs.WalkDir(files, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := fs.ReadFile(files, path)
		all = append(all, archive.File{Name: path, Mode: 0o644, Data: content})
		return err
	})
	if err != nil {
		return err
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	return errors.Join(archive.Tar(f, all), f.Close())
}
