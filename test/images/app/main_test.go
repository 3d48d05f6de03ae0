package main

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// What the image can do is said by itself.
func TestHelpListsEveryCommand(t *testing.T) {
	program := filepath.Join(t.TempDir(), "app")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, argument := range []string{"--help", "-h", "help"} {
		out, err := exec.CommandContext(t.Context(), program, argument).Output()
		if err != nil {
			t.Errorf("app %s: %v", argument, err)
		}
		for name := range arguments {
			if !regexp.MustCompile(`(?m)^  app \[?` + name + `\b`).Match(out) {
				t.Errorf("app %s does not say what app %s does:\n%s", argument, name, out)
			}
		}
	}
	out, err := exec.CommandContext(t.Context(), program, "halp").CombinedOutput()
	if want := "app halp: no such command: app help lists them\n"; err == nil || string(out) != want {
		t.Errorf("app halp: %v, %q, want %q", err, out, want)
	}
}
