package main

import (
	"strings"
	"testing"

	"github.com/kubeslot/kubeslot/test/helm/rig"
)

// A reader can type what the demo shows: nothing of it is left out.
func TestHelmCommandIsWhole(t *testing.T) {
	values := new(rig.Rig).Values()
	shown := helmCommand(append([]string{"install", "kubeslot", chart, "--wait"}, values...))
	words := strings.Fields(strings.ReplaceAll(shown, "\\\n", ""))
	want := "helm install kubeslot deploy/helm/kubeslot --wait --namespace kubeslot-system " + strings.Join(values, " ")
	if got := strings.Join(words, " "); got != want {
		t.Errorf("the command is\n%s\nwant\n%s", got, want)
	}
	if got, want := helmCommand([]string{"test", "kubeslot"}), "helm test kubeslot --namespace kubeslot-system"; got != want {
		t.Errorf("the command is %q, want %q", got, want)
	}
	for line := range strings.Lines(shown) {
		if len(line) > 100 {
			t.Errorf("a line is too long to read: %s", line)
		}
	}
}
