package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Demos and tests share what is compiled quickly, also with a contributor's shell. What users get, and
// what benchmarks measure, is optimized whatever that shell has set.
func TestCompilerFlagsOfTargets(t *testing.T) {
	const quick = "'-gcflags=all=-dwarf=false -l -d=ssa/prove/off'"
	for _, page := range []string{"CONTRIBUTING.md", "docs/testing.md"} {
		text, err := os.ReadFile(filepath.Join(root, page))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(strings.ReplaceAll(string(text), "\n", " "), quick) {
			t.Errorf("%s has its readers compile otherwise than make does: no %s in it", page, quick)
		}
	}
	t.Setenv("GOFLAGS", "-modcacherw "+quick)
	for flags, targets := range map[string][]string{
		quick: {"demo", "demo-helm", "test-unit", "test-e2e", "lint", "fuzz"},
		"'-gcflags=all=-dwarf=false'": {
			"build", "plugins", "images", "push", "pictures", "krew", "release", "test-gpu",
			"bench-scheduler", "bench-scheduler-process", "bench-plugins", "bench-scale", "bench-discovery",
			"bench-brokers", "bench-device-plugin", "bench-cri",
		},
	} {
		for _, target := range targets {
			said := repositoryMake(t, "--dry-run", "--eval=flags: ; echo flags: $(GOFLAGS)", "--eval="+target+": flags",
				target, "UNIT=", "RACE=", "REGISTRY=registry.example", "VERSION=v1.2.3")
			_, said, _ = strings.Cut(said, "flags: ")
			said, _, _ = strings.Cut(said, "\n")
			once := strings.Count(said, "-gcflags") == 1
			if !once || !strings.Contains(said, flags) || !strings.Contains(said, "-modcacherw") {
				t.Errorf("make %s has go compile with %s, want %s and -modcacherw", target, said, flags)
			}
		}
	}
}
