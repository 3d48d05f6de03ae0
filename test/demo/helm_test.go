package main

import (
	"strings"
	"testing"

	"github.com/kubeslot/kubeslot/test/helm/rig"
)

// A reader can type what the demo shows: nothing of it is left out.
func TestHelmCommandIsWhole(t *testing.T) {
	args := append([]string{"install", "kubeslot", chart, "--wait"}, new(rig.Rig).Values()...)
	shown := helmCommand(args)
	words := strings.Fields(strings.ReplaceAll(shown, "\\\n", ""))
	if want := "helm " + strings.Join(args, " ") + " --namespace kubeslot-system"; strings.Join(words, " ") != want {
		t.Errorf("the command is\n%s\nwant\n%s", shown, want)
	}
	for line := range strings.Lines(shown) {
		if len(line) > 100 {
			t.Errorf("a line is too long to read: %s", line)
		}
	}
}
