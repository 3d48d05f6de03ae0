package command

import (
	"strings"
	"testing"
)

// The help of a command shows its own flags; `options` shows those of all commands.
func TestHelpShowsOwnFlags(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nonexistent")
	for line, flags := range map[string]struct{ shown, not []string }{
		"--help":         {[]string{"--version", "Available Commands:"}, []string{"--kubeconfig", "--output", "\n  options"}},
		"list --help":    {[]string{"--all-namespaces", "-o, --output", "--no-headers"}, []string{"--kubeconfig", "--namespace "}},
		"help node":      {[]string{"-o, --output", "--no-headers"}, []string{"--kubeconfig"}},
		"release --help": {[]string{"--force"}, []string{"--kubeconfig", "--output"}},
		"options":        {[]string{"--kubeconfig", "-n, --namespace", "--request-timeout"}, []string{"--output", "--help", "Use \""}},
	} {
		text := newStory().run(t, "", strings.Fields(line)...)
		hint := "\nUse \"kubectl kubeslot options\" for a list of global command-line options (applies to all commands).\n"
		if line != "options" && !strings.HasSuffix(text, hint) {
			t.Errorf("%q does not end with %q:\n%s", line, hint, text)
		}
		for _, want := range flags.shown {
			if !strings.Contains(text, want) {
				t.Errorf("%q does not show %q:\n%s", line, want, text)
			}
		}
		for _, not := range flags.not {
			if strings.Contains(text, not) {
				t.Errorf("%q shows %q:\n%s", line, not, text)
			}
		}
	}
}
