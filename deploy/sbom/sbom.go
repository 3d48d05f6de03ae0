// Package sbom writes down what an artifact is made of, as SPDX 2.3 JSON.
package sbom

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// Document is the part of SPDX 2.3 that is written.
type Document struct {
	Version string `json:"spdxVersion"`
	License string `json:"dataLicense"`
	ID      string `json:"SPDXID"`
	Name    string `json:"name"`
	// Namespace is the document's alone. JSON sets it.
	Namespace     string         `json:"documentNamespace"`
	Creation      Creation       `json:"creationInfo"`
	Packages      []Package      `json:"packages"`
	Relationships []Relationship `json:"relationships"`
}

// Creation is when and by what the document was made.
type Creation struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

// Package is an artifact, or a part of one.
type Package struct {
	ID            string     `json:"SPDXID"`
	Name          string     `json:"name"`
	Version       string     `json:"versionInfo,omitempty"`
	FileName      string     `json:"packageFileName,omitempty"`
	Location      string     `json:"downloadLocation"`
	FilesAnalyzed bool       `json:"filesAnalyzed"`
	Checksums     []Checksum `json:"checksums,omitempty"`
	External      []External `json:"externalRefs,omitempty"`
}

// Checksum is of a package's file.
type Checksum struct {
	Algorithm string `json:"algorithm"`
	Value     string `json:"checksumValue"`
}

// External names a package as others do.
type External struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

// Relationship is one of SPDX' between two packages, or the document and one.
type Relationship struct {
	From string `json:"spdxElementId"`
	Type string `json:"relationshipType"`
	To   string `json:"relatedSpdxElement"`
}

// New returns the document of an artifact that was made at a time; the zero time is 1970.
func New(name string, created time.Time) *Document {
	if created.IsZero() {
		created = time.Unix(0, 0)
	}
	return &Document{
		Version: "SPDX-2.3", License: "CC0-1.0", ID: "SPDXRef-DOCUMENT", Name: name,
		Creation: Creation{created.UTC().Format(time.RFC3339), []string{"Tool: kubeslot"}},
	}
}

var notID = regexp.MustCompile(`[^A-Za-z0-9.-]+`)

// Add lists a package, unless it is listed, with its relationship to what has the ID from, and
// returns its ID. The package needs none: where two would have the same, the second has a number behind it.
func (d *Document) Add(from, relation string, p Package) string {
	id := "SPDXRef-" + notID.ReplaceAllString(strings.TrimSuffix(p.Name+"-"+p.Version, "-"), "-")
	p.ID, p.Location = id, "NOASSERTION"
	for n := 2; ; n++ {
		at := slices.IndexFunc(d.Packages, func(there Package) bool { return there.ID == p.ID })
		if at < 0 {
			d.Packages = append(d.Packages, p)
			break
		}
		if d.Packages[at].Name == p.Name && d.Packages[at].Version == p.Version {
			break
		}
		p.ID = fmt.Sprintf("%s-%d", id, n)
	}
	if r := (Relationship{from, relation, p.ID}); from != p.ID && !slices.Contains(d.Relationships, r) {
		d.Relationships = append(d.Relationships, r)
	}
	return p.ID
}

// AddArtifact lists the file that the document is of, which has a SHA-256, and returns its ID.
func (d *Document) AddArtifact(file, version, sha256 string) string {
	return d.Add(d.ID, "DESCRIBES", Package{
		Name: file, Version: version, FileName: file, Checksums: []Checksum{{"SHA256", sha256}},
	})
}

// AddProgram lists the main module of a Go program, of the version, and the modules that the
// program is made of, as the program itself says. It returns the main module's ID.
func (d *Document) AddProgram(from, relation, version string, program []byte) (string, error) {
	info, err := buildinfo.Read(bytes.NewReader(program))
	if err != nil {
		return "", err
	}
	if version == "" {
		version = info.Main.Version
	}
	main := d.addModule(from, relation, &debug.Module{Path: info.Main.Path, Version: version})
	d.addModule(main, "DEPENDS_ON", &debug.Module{Path: "stdlib", Version: strings.TrimPrefix(info.GoVersion, "go")})
	for _, m := range info.Deps {
		if m.Version == "(devel)" && m.Replace == nil { // another module of the repository, by go.work
			m = &debug.Module{Path: m.Path, Version: version}
		}
		d.addModule(main, "DEPENDS_ON", m)
	}
	return main, nil
}

func (d *Document) addModule(from, relation string, m *debug.Module) string {
	if m.Replace != nil {
		m = m.Replace
	}
	return d.Add(from, relation, Package{
		Name: m.Path, Version: m.Version, External: []External{Purl("golang", m.Path, m.Version)},
	})
}

// Purl is a package's URL, see github.com/package-url/purl-spec: of a kind, as golang or oci.
func Purl(kind, name, version string) External {
	return External{"PACKAGE-MANAGER", "purl", "pkg:" + kind + "/" + name + "@" + url.QueryEscape(version)}
}

// JSON returns the document. Its namespace has the digest of the rest, so that each build has
// its own, and the same build the same.
func (d *Document) JSON() ([]byte, error) {
	d.Namespace = ""
	text, err := json.Marshal(d)
	if err != nil {
		return nil, fmt.Errorf("SBOM of %s: %w", d.Name, err)
	}
	d.Namespace = fmt.Sprintf("https://kubeslot.io/sbom/%s-%x", d.Name, sha256.Sum256(text))
	return json.MarshalIndent(d, "", " ")
}
