package validation

import (
	"os"
	"path/filepath"
	"testing"

	"sigs.k8s.io/yaml"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// samples are Akri's Configurations, as types/akri/v0 keeps them.
func samples(t testing.TB) []*akriv0.Configuration {
	t.Helper()
	files, err := filepath.Glob("../../types/akri/v0/testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no samples: %v", err)
	}
	var all []*akriv0.Configuration
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		c := &akriv0.Configuration{}
		if err := yaml.UnmarshalStrict(text, c); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all = append(all, c)
	}
	return all
}
