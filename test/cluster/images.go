package cluster

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"runtime"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	ocilayout "github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// testImages maps the programs of images to the images' names.
var testImages = map[string]string{"pause": PauseImage, "app": AppImage}

// writeImage packs one static program as an image's only file and entry point.
func writeImage(ref, program, archive string) error {
	binary, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	entry := "/" + filepath.Base(program)
	layer, err := singleFileLayer(entry, binary)
	if err != nil {
		return err
	}
	image, err := mutate.AppendLayers(mutate.MediaType(empty.Image, ociManifest), layer)
	if err != nil {
		return err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	config.Config = v1.Config{Entrypoint: []string{entry}, Env: []string{"PATH=/"}}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return err
	}

	dir, err := os.MkdirTemp(filepath.Dir(archive), "oci-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	index, err := ocilayout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	named := ocilayout.WithAnnotations(map[string]string{"io.containerd.image.name": ref})
	if err := index.AppendImage(image, named); err != nil {
		return err
	}
	return tarDir(dir, archive)
}

const (
	ociManifest = "application/vnd.oci.image.manifest.v1+json"
	ociLayer    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

func singleFileLayer(name string, content []byte) (v1.Layer, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	header := &tar.Header{Name: name[1:], Mode: 0o755, Size: int64(len(content))}
	if err := w.WriteHeader(header); err != nil {
		return nil, err
	}
	if _, err := w.Write(content); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(buf.Bytes())), nil }
	return tarball.LayerFromOpener(open, tarball.WithMediaType(ociLayer))
}

func tarDir(dir, archive string) error {
	f, err := os.Create(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	w := tar.NewWriter(f)
	if err := w.AddFS(os.DirFS(dir)); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return f.Close()
}
