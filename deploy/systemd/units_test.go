package systemd

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// systemd ignores what it does not know, with a line in its log.
func TestSystemdKnowsAllThatTheUnitsSay(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("needs systemd-analyze")
	}
	dir, args := t.TempDir(), []string{"verify", "--man=no"}
	for _, name := range []string{"kubecri.service", "kubecri.socket", "controller.service", "kube-scheduler.service"} {
		unit, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, name)
		// The programs need not be there.
		unit = []byte(strings.ReplaceAll(string(unit), "ExecStart=/usr/local/bin/", "ExecStart=/bin/true "))
		if err := os.WriteFile(path, unit, 0o644); err != nil {
			t.Fatal(err)
		}
		args = append(args, path)
	}
	if out, err := exec.Command("systemd-analyze", args...).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}
