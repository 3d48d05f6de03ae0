package release

import (
	"bytes"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// statement is in-toto's of version 1, with SLSA's provenance of version 1. It has no times,
// so that the same build says the same. See https://slsa.dev/spec/v1.0/provenance.
type statement struct {
	Type          string       `json:"_type"`
	Subject       []descriptor `json:"subject"`
	PredicateType string       `json:"predicateType"`
	Predicate     predicate    `json:"predicate"`
}

type predicate struct {
	BuildDefinition buildDefinition `json:"buildDefinition"`
	RunDetails      runDetails      `json:"runDetails"`
}

type buildDefinition struct {
	BuildType            string            `json:"buildType"`
	ExternalParameters   map[string]any    `json:"externalParameters"`
	InternalParameters   map[string]string `json:"internalParameters"`
	ResolvedDependencies []descriptor      `json:"resolvedDependencies"`
}

type runDetails struct {
	Builder builder `json:"builder"`
}

type builder struct {
	ID string `json:"id"`
}

// descriptor names an artifact or a source, with its digests by algorithm.
type descriptor struct {
	Name   string            `json:"name,omitempty"`
	URI    string            `json:"uri,omitempty"`
	Digest map[string]string `json:"digest"`
}

// materials are the modules that programs are made of, as name@version, with the hash that
// go.sum has of them, and the versions of Go, as "go".
type materials map[string]string

const goVersion = "go"

// add reads them from a program.
func (m materials) add(program []byte) error {
	info, err := buildinfo.Read(bytes.NewReader(program))
	if err != nil {
		return err
	}
	m[goVersion] = info.GoVersion
	for _, d := range info.Deps {
		if d.Replace != nil {
			d = d.Replace
		}
		if d.Sum != "" { // those of the repository itself have none
			m[d.Path+"@"+d.Version] = d.Sum
		}
	}
	return nil
}

// dirHash is go.sum's hash as in-toto writes it.
func dirHash(sum string) (string, error) {
	digest, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(sum, "h1:"))
	if err != nil || !strings.HasPrefix(sum, "h1:") {
		return "", fmt.Errorf("%q is no hash of go.sum", sum)
	}
	return hex.EncodeToString(digest), nil
}

// provenance says what the files and images of the release were made of, how, and by whom.
func (r *release) provenance() ([]byte, error) {
	var subjects []descriptor
	for _, f := range r.files {
		subjects = append(subjects, descriptor{Name: f.Name, Digest: map[string]string{"sha256": f.SHA256}})
	}
	for _, i := range r.images {
		subjects = append(subjects, descriptor{Name: i.ref, Digest: map[string]string{"sha256": i.digest.Hex}})
	}
	chart, err := r.chart.digest()
	if err != nil {
		return nil, err
	}
	subjects = append(subjects, descriptor{Name: r.chartRef(), Digest: map[string]string{"sha256": chart.Hex}})
	sources := []descriptor{{
		URI: "git+" + r.Repository + "@refs/tags/" + r.Version, Digest: map[string]string{"gitCommit": r.source.commit},
	}}
	for _, module := range slices.Sorted(maps.Keys(r.materials)) {
		if module == goVersion {
			continue
		}
		hash, err := dirHash(r.materials[module])
		if err != nil {
			return nil, fmt.Errorf("module %s: %w", module, err)
		}
		sources = append(sources, descriptor{URI: "pkg:golang/" + module, Digest: map[string]string{"dirHash": hash}})
	}
	parameters := map[string]any{
		"version": r.Version, "repository": r.Repository, "architectures": r.Architectures, "ldflags": r.LDFlags,
	}
	if r.Registry != "" {
		parameters["registry"] = r.Registry
	}
	return json.MarshalIndent(statement{
		Type: "https://in-toto.io/Statement/v1", Subject: subjects, PredicateType: "https://slsa.dev/provenance/v1",
		Predicate: predicate{
			BuildDefinition: buildDefinition{
				BuildType:          Repository + "/blob/main/docs/release.md#provenance",
				ExternalParameters: parameters, InternalParameters: map[string]string{"go": r.materials[goVersion]},
				ResolvedDependencies: sources,
			},
			RunDetails: runDetails{builder{r.Builder}},
		},
	}, "", " ")
}
