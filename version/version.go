// Package version says which Kubeslot a program is of. Makefile sets it with the
// linker's -X, images likewise.
package version

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"github.com/spf13/pflag"
	kubernetes "k8s.io/component-base/version"
)

// Set by -ldflags=-X; commit is found in the build's own information otherwise.
var (
	version = ""
	commit  = ""
)

// development is the version of a build that was told none.
const development = "v0.0.0-dev"

// Version returns Kubeslot's version, such as v0.1.0.
func Version() string { return cmp.Or(version, development) }

// Commit returns the commit that the program was built from, with -dirty after it if
// files were changed; "unknown" when that was not recorded.
func Commit() string {
	if commit != "" {
		return commit
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return fromBuild(info.Settings)
}

func fromBuild(settings []debug.BuildSetting) string {
	revision, dirty := "unknown", ""
	for _, s := range settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}
	if revision == "unknown" {
		return revision
	}
	return revision + dirty
}

// String is what --version prints, without the program's name.
func String() string {
	return fmt.Sprintf("Kubeslot %s (commit %s), Kubernetes %s", Version(), Commit(), kubernetes.Get().GitVersion)
}

// Print writes what --version prints of a program.
func Print(out io.Writer) { fmt.Fprintln(out, String()) }

// PrintAndExitIfRequested prints the version and ends the process when the flag
// --version of k8s.io/component-base/version/verflag is given, with our version
// before Kubernetes'. --version=raw is left to verflag, and so is --version=v1.2.3,
// which sets Kubernetes' own.
func PrintAndExitIfRequested(flags *pflag.FlagSet) {
	if Requested(flags) {
		Print(os.Stdout)
		os.Exit(0)
	}
}

// Requested reports whether --version is given, and not for verflag alone.
func Requested(flags *pflag.FlagSet) bool {
	f := flags.Lookup("version")
	return f != nil && f.Value.String() == "true"
}
