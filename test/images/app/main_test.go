package main

import (
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
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

// Slots count once, whichever way the node gives them.
func TestDevices(t *testing.T) {
	tests := map[string]struct {
		env  map[string]string
		want []device
	}{
		"none":          {nil, nil},
		"no slot":       {map[string]string{"AKRI_DEVICES": "[]"}, []device{}},
		"slots":         {map[string]string{"AKRI_DEVICES": `[{"slot":"cam-1-0","properties":{"DEBUG_ECHO_DESCRIPTION":"gate"}}]`}, []device{{"cam-1-0", "gate"}}},
		"device plugin": {map[string]string{"AKRI_DEVICES_CAM": `[{"slot":"cam-1-0"},{"slot":"cam-2-1"}]`}, []device{{"cam-1-0", ""}, {"cam-2-1", ""}}},
		"two requests": {map[string]string{"AKRI_DEVICES": `[{"slot":"cam-1-0"}]`, "AKRI_DEVICES_A": `[{"slot":"cam-1-0"}]`, "AKRI_DEVICES_B": `[{"slot":"mic-1-0"}]`},
			[]device{{"cam-1-0", ""}, {"mic-1-0", ""}}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			for k, v := range test.env {
				t.Setenv(k, v)
			}
			got, err := devices()
			slices.SortFunc(got, func(a, b device) int { return strings.Compare(a.Slot, b.Slot) })
			if err != nil || !reflect.DeepEqual(got, test.want) {
				t.Errorf("devices are %v (%v), want %v", got, err, test.want)
			}
		})
	}
}
