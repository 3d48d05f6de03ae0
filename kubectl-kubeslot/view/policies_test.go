package view

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

// doctor asks for the policies that deploy/policies has, but for those that only warn.
func TestPoliciesAreThoseOfDeploy(t *testing.T) {
	files, err := filepath.Glob("../../deploy/policies/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no policies: %v", err)
	}
	named := regexp.MustCompile(`(?m)^kind: ValidatingAdmissionPolicy\nmetadata:\n  name: (\S+)`)
	var want []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !regexp.MustCompile(`(?m)^  validationActions: \[Deny\]$`).Match(text) {
			continue
		}
		for _, m := range named.FindAllSubmatch(text, -1) {
			want = append(want, string(m[1]))
		}
	}
	slices.Sort(want)
	if got := slices.Sorted(maps.Keys(policies)); !slices.Equal(got, want) {
		t.Errorf("doctor asks for %q, and deploy/policies has %q", got, want)
	}
}
