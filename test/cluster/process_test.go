package cluster

import (
	"os/exec"
	"syscall"
	"testing"
	"time"
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
	for deadline := time.Now().Add(time.Minute); !id.stopped(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("waited a minute for the process to stop")
		}
	}
	if err := id.signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); id.stopped(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("waited a minute for the process to go on")
		}
	}
}
