package sysfstest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kubeslot/kubeslot/discovery/sysfs"
)

// inNamespace is set to the test's name in the process that InNamespace starts.
const inNamespace = "KUBESLOT_TEST_NAMESPACE"

// InNamespace runs the calling test in a process of its own, with network and mount
// namespaces of its own: what it does to network devices and mounts, nobody else sees.
// It returns true in that process, and false in the first one, once that process has
// ended. Skips the test where not root. The test must not be a subtest.
//
//	if !sysfstest.InNamespace(t) {
//		return
//	}
func InNamespace(t *testing.T) bool {
	t.Helper()
	if os.Getenv(inNamespace) == t.Name() {
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			t.Fatalf("make mounts private: %v", err)
		}
		return true
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root, for namespaces and real devices: sudo go test")
	}
	limit := 2 * time.Minute
	if deadline, ok := t.Deadline(); ok {
		limit = time.Until(deadline) - time.Second
	}
	args := []string{"-test.run=^" + t.Name() + "$", "-test.v", fmt.Sprintf("-test.timeout=%v", limit)}
	command := exec.CommandContext(t.Context(), os.Args[0], args...)
	command.Env = append(os.Environ(), inNamespace+"="+t.Name())
	command.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS,
		Pdeathsig:  syscall.SIGKILL,
	}
	output, err := command.CombinedOutput()
	t.Logf("in namespaces of its own:\n%s", output)
	if err != nil {
		t.Fatalf("in namespaces of its own: %v", err)
	}
	if strings.Contains(string(output), "--- SKIP: "+t.Name()+" ") {
		t.Skip("skipped in namespaces of its own, see above")
	}
	return false
}

// Own is the Tree of the calling process's network namespace, for a test inside
// InNamespace: sysfs shows network devices of the namespace that it was mounted in.
func Own(t *testing.T) sysfs.Tree {
	t.Helper()
	root := t.TempDir()
	sys := filepath.Join(root, "sys")
	if err := os.Mkdir(sys, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("sysfs", sys, "sysfs", 0, ""); err != nil {
		t.Fatalf("mount sysfs: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(sys, unix.MNT_DETACH) })
	return sysfs.Tree{Sys: sys, UdevData: filepath.Join(root, "run/udev/data")}
}
