package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A program in a mount namespace of its own, as in a container, makes mount namespaces for nodes,
// whichever CPU made the program's.
func TestMountNamespaceOfANode(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	if dir := os.Getenv("KUBESLOT_TEST_DIR"); dir != "" {
		makeMountNSIn(t, dir)
		return
	}
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		t.Fatal(err)
	}
	all := []string{}
	for cpu := range runtime.NumCPU() {
		if allowed.IsSet(cpu) {
			all = append(all, strconv.Itoa(cpu))
		}
	}
	for _, cpu := range all {
		t.Run("made on CPU "+cpu, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), "taskset", "--cpu-list", cpu, "unshare", "--mount", "--propagation=private",
				"taskset", "--cpu-list", strings.Join(all, ","), os.Args[0], "-test.run=^"+strings.Split(t.Name(), "/")[0]+"$")
			cmd.Env = append(os.Environ(), "KUBESLOT_TEST_DIR="+t.TempDir())
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

func makeMountNSIn(t *testing.T, dir string) {
	namespaces := filepath.Join(dir, "ns")
	if err := makeNamespaceDir(namespaces); err != nil {
		t.Fatal(err)
	}
	net := filepath.Join(namespaces, "net")
	if err := makeNetNS(net); err != nil {
		t.Fatal(err)
	}
	for i := range 8 {
		if err := makeMountNS(filepath.Join(namespaces, fmt.Sprint("mnt-", i)), net, nil); err != nil {
			t.Error(err)
		}
	}
	if err := unmountBeneath(namespaces); err != nil {
		t.Error(err)
	}
}
