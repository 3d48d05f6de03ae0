// Package examples checks what a user copies: that READMEs name what is there, and that the objects are valid,
// as far as that can be checked without an API server. Package deploy applies them to one, and test/e2e runs
// three stories.
package examples

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/dynamic-resource-allocation/cel"

	"github.com/kubeslot/kubeslot/controller/validation"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

const maxLines = 30 // of a README

var (
	named = regexp.MustCompile(`[\w.-]+\.yaml`)
	link  = regexp.MustCompile(`\]\(([^)#]+)`)
)

// stories are the folders with their YAML files.
func stories(t *testing.T) map[string][]string {
	t.Helper()
	files, err := filepath.Glob("*/*")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	for _, file := range files {
		switch folder, name := filepath.Split(file); {
		case strings.HasSuffix(name, ".yaml"):
			all[filepath.Clean(folder)] = append(all[filepath.Clean(folder)], name)
		case name != "README.md":
			t.Errorf("%s is neither a README nor YAML", file)
		}
	}
	if len(all) < 10 {
		t.Errorf("found only %d stories", len(all))
	}
	return all
}

// A README is short, names all files of its folder and no others, and its links lead.
func TestREADMEs(t *testing.T) {
	list, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for story, files := range stories(t) {
		text, err := os.ReadFile(filepath.Join(story, "README.md"))
		if err != nil {
			t.Error(err)
			continue
		}
		if n := bytes.Count(text, []byte("\n")); n > maxLines {
			t.Errorf("README of %s has %d lines, want at most %d", story, n, maxLines)
		}
		names := map[string]bool{}
		for _, name := range named.FindAllString(string(text), -1) {
			names[name] = true
			if _, err := os.Stat(filepath.Join(story, name)); err != nil {
				t.Errorf("README of %s: %v", story, err)
			}
		}
		for _, name := range files {
			if !names[name] {
				t.Errorf("README of %s does not say what %s is for", story, name)
			}
		}
		for _, m := range link.FindAllSubmatch(text, -1) {
			if _, err := os.Stat(filepath.Join(story, string(m[1]))); err != nil {
				t.Errorf("README of %s: %v", story, err)
			}
		}
		if !bytes.Contains(list, []byte("("+story+"/README.md)")) {
			t.Errorf("README.md does not list %s", story)
		}
	}
}

// Each object has no unknown field, and each Configuration can work as it is.
func TestObjects(t *testing.T) {
	if err := akriv0.AddToScheme(scheme.Scheme); err != nil {
		t.Fatal(err)
	}
	strict := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	checker, err := validation.NewChecker(validation.Handlers())
	if err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".yaml") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		documents := yaml.NewDocumentDecoder(nopCloser{bytes.NewReader(text)})
		defer documents.Close()
		buffer := make([]byte, len(text)+1)
		for {
			n, err := documents.Read(buffer)
			if err != nil {
				return nil // the end
			}
			object, _, err := strict.Decode(buffer[:n], nil, nil)
			if err != nil {
				t.Errorf("%s: %v", path, err)
				continue
			}
			switch c := object.(type) {
			case *resourceapi.ResourceClaim:
				selectors(t, path, &c.Spec)
			case *resourceapi.ResourceClaimTemplate:
				selectors(t, path, &c.Spec.Spec)
			case *akriv0.Configuration:
				if found := checker.Check(c); len(found.Errors)+len(found.Warnings) > 0 {
					t.Errorf("%s: %v, %q", path, found.Errors, found.Warnings)
				}
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

// selectors checks that the scheduler can read a claim's selectors.
func selectors(t *testing.T, path string, spec *resourceapi.ResourceClaimSpec) {
	t.Helper()
	for _, request := range spec.Devices.Requests {
		for _, s := range request.Exactly.Selectors {
			if r := cel.GetCompiler(cel.Features{}).CompileCELExpression(s.CEL.Expression,
				cel.Options{}); r.Error != nil {
				t.Errorf("%s: %s: %v", path, s.CEL.Expression, r.Error)
			}
		}
	}
}

type nopCloser struct{ *bytes.Reader }

func (nopCloser) Close() error { return nil }
