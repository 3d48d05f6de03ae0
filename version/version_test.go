package version

import (
	"runtime/debug"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"k8s.io/component-base/version/verflag"
)

func TestString(t *testing.T) {
	defer func() { version, commit = "", "" }()
	version, commit = "v0.1.0", "abc"
	if got := String(); !strings.HasPrefix(got, "Kubeslot v0.1.0 (commit abc), Kubernetes v") {
		t.Error(got)
	}
	version = ""
	if got := Version(); got != "v0.0.0-dev" {
		t.Error(got)
	}
}

func TestFromBuild(t *testing.T) {
	for want, settings := range map[string][]debug.BuildSetting{
		"unknown":   {{Key: "vcs.modified", Value: "true"}},
		"abc":       {{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: "false"}},
		"abc-dirty": {{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: "true"}},
	} {
		if got := fromBuild(settings); got != want {
			t.Errorf("%v: %s", settings, got)
		}
	}
}

// verflag's other values are verflag's.
func TestRequested(t *testing.T) {
	for argument, want := range map[string]bool{"": false, "--version": true, "--version=true": true, "--version=raw": false, "--version=false": false} {
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		verflag.AddFlags(flags)
		if err := flags.Set("version", "false"); err != nil {
			t.Fatal(err)
		}
		var args []string
		if argument != "" {
			args = []string{argument}
		}
		if err := flags.Parse(args); err != nil {
			t.Fatal(err)
		}
		if got := Requested(flags); got != want {
			t.Errorf("%q: %t", argument, got)
		}
	}
}
