package cluster

import (
	"fmt"
	"os"
	"testing"
)

// A process that removes files by a pattern without a directory removes them where it
// runs: the kubelet does when a container has no log path, and in the machine's root
// that was /bin.
func directoriesOfTheirOwn(t *testing.T, c *Cluster) {
	all := c.layout.processes()
	if len(all) == 0 {
		t.Fatal("no process is recorded")
	}
	users := map[string]*process{}
	for _, p := range all {
		dir, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", p.Started.PID))
		if err != nil {
			t.Errorf("%s: %v", p, err)
			continue
		}
		if want := c.layout.workOf(p.Component, p.Node); dir != want {
			t.Errorf("%s runs in %s, want %s", p, dir, want)
		}
		if other := users[dir]; other != nil {
			t.Errorf("%s and %s both run in %s", p, other, dir)
		}
		users[dir] = p
	}
}
