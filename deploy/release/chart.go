package release

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"sigs.k8s.io/yaml"

	"github.com/kubeslot/kubeslot/deploy/archive"
	"github.com/kubeslot/kubeslot/deploy/sbom"
)

const (
	// chartName is the chart's, and that of its folder in archives.
	chartName = "kubeslot"
	// What Helm calls the parts of a chart in a registry.
	chartConfigType  types.MediaType = "application/vnd.cncf.helm.config.v1+json"
	chartContentType types.MediaType = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
)

// chart is the Helm chart as a registry has it.
type chart struct {
	manifest []byte
	layers   []v1.Layer // config and content
}

func (c chart) digest() (v1.Hash, error) {
	digest, _, err := v1.SHA256(bytes.NewReader(c.manifest))
	return digest, err
}

// RawManifest and MediaType are what a registry is sent.
func (c chart) RawManifest() ([]byte, error)        { return c.manifest, nil }
func (c chart) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }

// chartVersion is the release's as charts have it.
func (r *release) chartVersion() string { return strings.TrimPrefix(r.Version, "v") }

func (r *release) chartRef() string {
	return r.registry() + "/charts/" + chartName + ":" + r.chartVersion()
}

// packChart adds kubeslot-<version>.tgz, of the commit's files, whose values name the images by digest,
// and the registry where they are pushed.
func (r *release) packChart(ctx context.Context) error {
	root := filepath.Join(r.Root, "deploy/helm", chartName)
	names, err := git(ctx, root, "ls-files", "-z")
	if err != nil {
		return err
	}
	var files []archive.File
	var metadata []byte
	for name := range strings.SplitSeq(strings.TrimSuffix(names, "\x00"), "\x00") {
		path := filepath.Join(root, name)
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		switch name {
		case "Chart.yaml":
			metadata = data
		case "values.yaml":
			if data, err = r.chartValues(data); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
		}
		files = append(files, archive.File{Name: chartName + "/" + name, Mode: 0o644, Data: data})
	}
	var packed bytes.Buffer
	if err := archive.TarGz(&packed, files); err != nil {
		return err
	}
	if r.chart, err = newChart(metadata, packed.Bytes()); err != nil {
		return err
	}
	name := chartName + "-" + r.chartVersion() + ".tgz"
	r.say("%s", name)
	return r.writeWithSBOM(name, packed.Bytes(), func(d *sbom.Document, file string) error {
		d.Add(file, "CONTAINS", sbom.Package{Name: "crds", Version: r.chartVersion()})
		for _, i := range r.images {
			d.Add(file, "DEPENDS_ON", ociPackage(i.component, i.digest))
		}
		return nil
	})
}

// chartValues sets image.digests, and image.registry if the images are pushed. The rest stays
// as it is, with the comments.
func (r *release) chartValues(values []byte) ([]byte, error) {
	digests := "  digests:\n"
	for _, i := range r.images {
		digests += fmt.Sprintf("    %s: %s\n", i.component, i.digest)
	}
	set := map[string]string{"  digests: {}\n": digests}
	if r.Registry != "" {
		set["  registry: \"\"\n"] = fmt.Sprintf("  registry: %q\n", r.Registry)
	}
	for line, want := range set {
		if n := bytes.Count(values, []byte(line)); n != 1 {
			return nil, fmt.Errorf("has %d lines %q, want one", n, line)
		}
		values = bytes.ReplaceAll(values, []byte(line), []byte(want))
	}
	return values, nil
}

// newChart makes of a packed chart and its Chart.yaml what `helm push` would send.
func newChart(metadata, packed []byte) (chart, error) {
	config, err := yaml.YAMLToJSON(metadata)
	if err != nil {
		return chart{}, fmt.Errorf("read Chart.yaml: %w", err)
	}
	var about struct{ Name, Version, Description string }
	if err := json.Unmarshal(config, &about); err != nil {
		return chart{}, fmt.Errorf("read Chart.yaml: %w", err)
	}
	layers := []v1.Layer{static.NewLayer(config, chartConfigType), static.NewLayer(packed, chartContentType)}
	var parts []v1.Descriptor
	for _, l := range layers {
		part, err := partial.Descriptor(l)
		if err != nil {
			return chart{}, err
		}
		parts = append(parts, *part)
	}
	manifest, err := json.Marshal(v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1, Config: parts[0], Layers: parts[1:],
		Annotations: map[string]string{
			"org.opencontainers.image.title":       about.Name,
			"org.opencontainers.image.version":     about.Version,
			"org.opencontainers.image.description": about.Description,
		},
	})
	return chart{manifest, layers}, err
}
