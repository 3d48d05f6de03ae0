package cluster

import (
	"os/exec"
	"syscall"
	"testing"

	"github.com/kubeslot/kubeslot/test/await"
)

func TestStopped(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	id, ok := identify(cmd.Process.Pid)
	if !ok || id.stopped() {
		t.Fatalf("the process lives: %t; it has stopped", ok)
	}
	if err := id.signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	await.That(t, "the process to stop", id.stopped)
	if err := id.signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	await.That(t, "the process to go on", func() bool { return !id.stopped() })
}
