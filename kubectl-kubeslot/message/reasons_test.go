package message

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// For each reason that the scheduler, kubecri and the kubelet can give there is a scenario
// in which `pod` says it, and so there is for each of package view's own.
func TestEachReasonHasAScenario(t *testing.T) {
	files, err := filepath.Glob("../command/testdata/scenarios/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	said := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^  - (\w+)[,:]`).FindAllSubmatch(text, -1) {
			said[string(m[1])] = true
		}
	}
	for _, text := range slices.Concat(schedulerTexts, kubecriTexts, kubeletTexts) {
		if text.reason != "Starting" && !said[text.reason] {
			t.Errorf("there is no scenario of %s", text.reason)
		}
	}
	own := regexp.MustCompile(`Reason: +"(\w+)"|w\.Reason(?:, w\.Why)? = "(\w+)"`)
	sources, err := filepath.Glob("../view/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range sources {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if name := filepath.Base(file); strings.HasPrefix(name, "doctor") || strings.HasSuffix(name, "_test.go") {
			continue
		}
		for _, m := range own.FindAllSubmatch(text, -1) {
			if reason := string(m[1]) + string(m[2]); !said[reason] {
				t.Errorf("%s: there is no scenario of %s", file, reason)
			}
		}
	}
}
