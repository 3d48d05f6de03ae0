// Package need finds the programs of others that a test runs. Without one the test is
// skipped. With CI=true it fails, since CI installs them all.
package need

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Program returns the path of the first of the programs that is installed. It looks also
// where root's programs are, which are not on everybody's PATH.
func Program(t testing.TB, install string, names ...string) string {
	t.Helper()
	for _, name := range names {
		for _, dir := range []string{"", "/usr/sbin", "/sbin"} {
			if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
				return path
			}
		}
	}
	Missing(t, fmt.Sprintf("%s is not installed: %s", strings.Join(names, " or "), install))
	return ""
}

// Missing ends the test, which cannot run for the reason.
func Missing(t testing.TB, why string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(why)
	}
	t.Skip(why)
}
