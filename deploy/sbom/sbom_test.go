package sbom

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"
)

// A document's namespace is its own, and that of the same build the same.
func TestNamespace(t *testing.T) {
	document := func(name, version string, created time.Time) (Document, []byte) {
		d := New(name, created)
		file := d.AddArtifact(name, version, "00")
		d.Add(
			file,
			"CONTAINS",
			Package{
				Name:     "k8s.io/api",
				Version:  "v1+incompatible",
				External: []External{Purl("golang", "k8s.io/api", "v1+incompatible")},
			},
		)
		text, err := d.JSON()
		if err != nil {
			t.Fatal(err)
		}
		again, err := d.JSON()
		if err != nil || !bytes.Equal(text, again) {
			t.Errorf("it is another the second time: %v\n%s", err, again)
		}
		var read Document
		if err := json.Unmarshal(text, &read); err != nil {
			t.Fatal(err)
		}
		return read, text
	}
	one, text := document("a.tar", "v1", time.Time{})
	if two, same := document("a.tar", "v1", time.Time{}); one.Namespace != two.Namespace || !bytes.Equal(text, same) {
		t.Errorf("one build has namespaces %s and %s", one.Namespace, two.Namespace)
	}
	for _, other := range []struct {
		name, version string
		created       time.Time
	}{{"b.tar", "v1", time.Time{}}, {"a.tar", "v2", time.Time{}}, {"a.tar", "v1", time.Unix(1, 0)}} {
		if two, _ := document(other.name, other.version, other.created); one.Namespace == two.Namespace {
			t.Errorf("%v has the namespace of another: %s", other, two.Namespace)
		}
	}
	if got := one.Packages[1].External[0].Locator; got != "pkg:golang/k8s.io/api@v1%2Bincompatible" {
		t.Errorf("package URL %s", got)
	}
	if one.Creation.Created != "1970-01-01T00:00:00Z" {
		t.Errorf("created %s", one.Creation.Created)
	}
}

// What several programs have is listed once, and nothing depends on itself.
func TestAddTwice(t *testing.T) {
	d := New("x", time.Time{})
	first := d.AddArtifact("x", "", "00")
	for range 2 {
		d.Add(first, "CONTAINS", Package{Name: "m", Version: "v1"})
		d.Add(first, "DEPENDS_ON", Package{Name: "x"})
	}
	if len(d.Packages) != 2 || len(d.Relationships) != 2 {
		t.Errorf("%+v", d)
	}
}

// Packages whose names differ only in what an ID cannot have are listed each, once.
func TestIDs(t *testing.T) {
	d := New("program", time.Time{})
	ids := map[string]bool{}
	for range 2 {
		for _, p := range []Package{{Name: "x/y_z", Version: "v1"}, {Name: "x/y-z", Version: "v1"},
			{Name: "x/y", Version: "z-v1"},
			{Name: "x/y-z-v1-2"}} {
			ids[d.Add(d.ID, "CONTAINS", p)] = true
		}
	}
	if len(ids) != 4 || len(d.Packages) != 4 || len(d.Relationships) != 4 {
		t.Errorf("IDs %v of %d packages, %d relationships", ids, len(d.Packages), len(d.Relationships))
	}
}
