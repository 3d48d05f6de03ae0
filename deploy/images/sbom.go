package images

import (
	"bytes"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"regexp"
	"runtime/debug"
	"strings"
)

// spdx is the part of SPDX 2.3 that an SBOM needs.
type spdx struct {
	Version       string         `json:"spdxVersion"`
	License       string         `json:"dataLicense"`
	ID            string         `json:"SPDXID"`
	Name          string         `json:"name"`
	Namespace     string         `json:"documentNamespace"`
	Creation      creation       `json:"creationInfo"`
	Packages      []packageInfo  `json:"packages"`
	Relationships []relationship `json:"relationships"`
}

type creation struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

type packageInfo struct {
	ID       string     `json:"SPDXID"`
	Name     string     `json:"name"`
	Version  string     `json:"versionInfo,omitempty"`
	Location string     `json:"downloadLocation"`
	External []external `json:"externalRefs,omitempty"`
}

type external struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type relationship struct {
	From string `json:"spdxElementId"`
	Type string `json:"relationshipType"`
	To   string `json:"relatedSpdxElement"`
}

// SBOM lists the Go modules that a program and its plugins are made of, which they say
// themselves, and the C library, as SPDX 2.3 JSON.
func SBOM(p Program) ([]byte, error) {
	name := p.Name
	info, err := buildinfo.Read(bytes.NewReader(p.Binary))
	if err != nil {
		return nil, fmt.Errorf("modules of %s: %w", name, err)
	}
	bill := spdx{
		Version: "SPDX-2.3", License: "CC0-1.0", ID: "SPDXRef-DOCUMENT", Name: name,
		Namespace: "https://kubeslot.io/sbom/" + name, Creation: creation{"1970-01-01T00:00:00Z", []string{"Tool: kubeslot-images"}},
	}
	listed := map[string]bool{}
	add := func(m *debug.Module, relation, from string) string {
		if m.Replace != nil {
			m = m.Replace
		}
		if listed[m.Path] {
			return ""
		}
		listed[m.Path] = true
		p := packageInfo{ID: "SPDXRef-" + notID.ReplaceAllString(m.Path+"-"+m.Version, "-"), Name: m.Path, Version: m.Version, Location: "NOASSERTION",
			External: []external{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + m.Path + "@" + m.Version}}}
		bill.Packages = append(bill.Packages, p)
		bill.Relationships = append(bill.Relationships, relationship{from, relation, p.ID})
		return p.ID
	}
	main := add(&info.Main, "DESCRIBES", bill.ID)
	add(&debug.Module{Path: "stdlib", Version: strings.TrimPrefix(info.GoVersion, "go")}, "DEPENDS_ON", main)
	modules := info.Deps
	for _, f := range p.Plugins {
		info, err := buildinfo.Read(bytes.NewReader(f.Content))
		if err != nil {
			return nil, fmt.Errorf("modules of %s: %w", f.Name, err)
		}
		modules = append(modules, info.Deps...)
	}
	for _, m := range modules {
		add(m, "DEPENDS_ON", main)
	}
	if p.LibC != "" {
		libc := packageInfo{ID: "SPDXRef-glibc", Name: "glibc", Version: p.LibC, Location: "NOASSERTION"}
		bill.Packages = append(bill.Packages, libc)
		bill.Relationships = append(bill.Relationships, relationship{main, "DYNAMIC_LINK", libc.ID})
	}
	return json.MarshalIndent(bill, "", " ")
}

var notID = regexp.MustCompile(`[^A-Za-z0-9.-]+`)
