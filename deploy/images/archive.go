package images

import (
	"archive/tar"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// WriteArchive writes an index as an OCI archive, under the name ref, such as
// "ghcr.io/kubeslot/kubecri:v0.1.0". `ctr images import`, `podman load` and `skopeo`
// read it. The file is there whole or not at all.
func WriteArchive(archive, ref string, index v1.ImageIndex) error {
	dir, err := os.MkdirTemp(filepath.Dir(archive), ".oci-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	named := mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex), mutate.IndexAddendum{
		Add: index, Descriptor: v1.Descriptor{Annotations: map[string]string{
			"io.containerd.image.name":          ref,
			"org.opencontainers.image.ref.name": tag(ref),
		}}})
	folder := filepath.Join(dir, "layout")
	if _, err := layout.Write(folder, named); err != nil {
		return err
	}
	next := filepath.Join(dir, "archive")
	if err := tarFolder(folder, next); err != nil {
		return err
	}
	return os.Rename(next, archive)
}

// tarFolder writes the folder's files in the order of their names, all from 1970.
func tarFolder(folder, archive string) error {
	f, err := os.Create(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	w := tar.NewWriter(f)
	files := os.DirFS(folder)
	err = fs.WalkDir(files, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := fs.ReadFile(files, path)
		if err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{Name: path, Mode: 0o644, Size: int64(len(content)), ModTime: time.Unix(0, 0), Format: tar.FormatPAX}); err != nil {
			return err
		}
		_, err = w.Write(content)
		return err
	})
	if err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return f.Close()
}

func tag(ref string) string {
	for i := len(ref) - 1; i >= 0 && ref[i] != '/'; i-- {
		if ref[i] == ':' {
			return ref[i+1:]
		}
	}
	return "latest"
}
