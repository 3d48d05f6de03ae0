// Package krew makes what krew, the package manager of kubectl's plugins, installs
// kubectl-kubeslot from: an archive for each platform, the manifest that names them with
// their checksums, and SHA256SUMS for people. Equal sources make equal archives.
package krew

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/kubeslot/kubeslot/deploy/archive"
	"github.com/kubeslot/kubeslot/deploy/gobuild"
)

// Name is the plugin's, and that of the manifest's file.
const Name = "kubeslot"

// program is the plugin's executable.
const program = "kubectl-" + Name

// Package is the executable's.
const Package = "./kubectl-kubeslot/cmd/" + program

// Platform is what the plugin is built for.
type Platform struct{ OS, Arch string }

// Platforms are all that it is built for.
var Platforms = []Platform{
	{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}, {"windows", "amd64"}, {"windows", "arm64"},
}

// Program is the executable's name.
func (p Platform) Program() string {
	if p.OS == "windows" {
		return program + ".exe"
	}
	return program
}

// Archive is the file's name: zip where people have no tar.
func (p Platform) Archive() string {
	ending := ".tar.gz"
	if p.OS == "windows" {
		ending = ".zip"
	}
	return fmt.Sprintf("%s_%s_%s%s", program, p.OS, p.Arch, ending)
}

// Build builds the executable for the platform, as build says but for its OS and
// Architecture, in a folder, and returns it and its archive.
func Build(ctx context.Context, p Platform, build gobuild.Program, folder string, license []byte) (executable,
	packed []byte, err error) {
	build.OS, build.Architecture = p.OS, p.Arch
	file := filepath.Join(folder, p.Program())
	if err := build.Build(ctx, file); err != nil {
		return nil, nil, err
	}
	if executable, err = os.ReadFile(file); err != nil {
		return nil, nil, err
	}
	packed, err = Pack(p, executable, license)
	return executable, packed, err
}

// Pack makes the platform's archive of the executable and the license, which krew
// demands.
func Pack(p Platform, executable, license []byte) ([]byte, error) {
	files := []archive.File{{Name: "LICENSE", Mode: 0o644, Data: license}, {Name: p.Program(), Mode: 0o755, Data: executable}}
	var out bytes.Buffer
	pack := archive.TarGz
	if p.OS == "windows" {
		pack = archive.Zip
	}
	if err := pack(&out, files); err != nil {
		return nil, fmt.Errorf("pack %s: %w", p.Archive(), err)
	}
	return out.Bytes(), nil
}

// Sum is the archive's SHA-256 in hex.
func Sum(archive []byte) string {
	sum := sha256.Sum256(archive)
	return hex.EncodeToString(sum[:])
}

// Release is what is published.
type Release struct {
	// Version is a semantic version that begins with v.
	Version string
	// URL is the folder that the archives are in, such as
	// https://example.com/kubeslot/releases/download/v0.2.0.
	URL string
	// Homepage is where people read more.
	Homepage string
	// Sums are the archives' checksums.
	Sums map[Platform]string
}

// semantic is a version as krew takes it.
var semantic = regexp.MustCompile(`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?$`)

const description = `Shows the devices that Kubeslot gives to pods: what is discovered, who holds
which slot, why a pod waits with each condition that is not met, who holds what
it wants and what would let it run, and what is wrong in the cluster. It acts
with your own permissions, and only reads, but for release: that frees slots of
a node that is off.`

const caveats = `Kubeslot has to be installed in the cluster. For completion of names, link the
plugin a second time:
  ln -s kubectl-kubeslot "$(dirname "$(command -v kubectl-kubeslot)")/kubectl_complete-kubeslot"`

// Manifest is krew's, as YAML.
func Manifest(r Release) ([]byte, error) {
	if !semantic.MatchString(r.Version) {
		return nil, fmt.Errorf("version %q: want one such as v1.2.3", r.Version)
	}
	for what, url := range map[string]string{"url": r.URL, "homepage": r.Homepage} {
		if !strings.HasPrefix(url, "https://") {
			return nil, fmt.Errorf("%s %q: want https://…", what, url)
		}
	}
	type m = map[string]any
	var platforms []m
	for _, p := range Platforms {
		sum, ok := r.Sums[p]
		if !ok {
			return nil, fmt.Errorf("no archive for %s/%s", p.OS, p.Arch)
		}
		platforms = append(platforms, m{
			"selector": m{"matchLabels": m{"os": p.OS, "arch": p.Arch}},
			"uri":      strings.TrimSuffix(r.URL, "/") + "/" + p.Archive(),
			"sha256":   sum,
			"files":    []m{{"from": p.Program(), "to": "."}, {"from": "LICENSE", "to": "."}},
			"bin":      p.Program(),
		})
	}
	return yaml.Marshal(m{
		"apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
		"kind":       "Plugin",
		"metadata":   m{"name": Name},
		"spec": m{
			"version": r.Version, "homepage": r.Homepage,
			"shortDescription": "Who holds which device slot, and why a pod waits",
			"description":      description, "caveats": caveats, "platforms": platforms,
		},
	})
}
