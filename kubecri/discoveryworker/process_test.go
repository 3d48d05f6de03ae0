package discoveryworker

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"reflect"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/discovery/remote"
	"github.com/kubeslot/kubeslot/discovery/unixsocket"
	"github.com/kubeslot/kubeslot/test/await"
)

// What ends the worker is an error of each Discover that runs, and of others until it is
// started again.
func TestAWorkerThatPanicsIsStartedAgain(t *testing.T) {
	w, clock := startWorker(t)
	handler := handlerOf(w, t.TempDir())
	for _, pause := range []string{"1 s", "2 s", "4 s"} {
		_, other := pid(t, handler)
		failing := discover(t, handler, "panic slice bounds out of range [:7]")
		want := "the discovery worker does not run: exit status 2: panic: slice bounds out of range [:7]"
		for _, d := range []*discovering{failing, other, discover(t, handler, "pid")} {
			err := await.Next(t, "the error", d.done)
			if !errors.Is(err, remote.ErrNoWorker) || !strings.HasPrefix(err.Error(), want) ||
				!strings.Contains(err.Error(), "after "+pause) {
				t.Errorf("Discover() = %v, want %s, and to start again after %s", err, want, pause)
			}
		}
		clock.Step(restarts.Cap)
	}
	clock.Step(settled)
	pid(t, handler)
	clock.Step(settled + time.Second)
	err := await.Next(t, "the error", discover(t, handler, "panic late").done)
	if err == nil || !strings.Contains(err.Error(), "after 1 s") {
		t.Errorf("Discover() = %v, want that the worker had worked for a while", err)
	}
}

func TestAWorkerThatIsKilledIsStartedAgain(t *testing.T) {
	w, clock := startWorker(t)
	handler := handlerOf(w, t.TempDir())
	first, running := pid(t, handler)
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	err := await.Next(t, "the error", running.done)
	if err == nil || !strings.Contains(err.Error(), "the discovery worker does not run: signal: killed") {
		t.Errorf("Discover() = %v", err)
	}
	clock.Step(restarts.Cap)
	if second, _ := pid(t, handler); second == first {
		t.Error("the worker that was killed still runs")
	}
}

// A process that a worker left behind may hold its socket.
func TestAWorkerIsStartedThoughAnEarlierSocketIsServed(t *testing.T) {
	w, _ := startWorker(t)
	l, err := net.Listen("unix", w.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	pid(t, handlerOf(w, t.TempDir()))
}

// That kubecri itself may gain no privileges, as its systemd unit has it, changes nothing.
func TestTheWorkerHasNoPrivileges(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to start a process of another user")
	}
	for name, noNewPrivileges := range map[string]bool{
		"of a kubecri with privileges": false, "of the unit's kubecri": true} {
		t.Run(name, func(t *testing.T) { testNoPrivileges(t, noNewPrivileges) })
	}
}

func testNoPrivileges(t *testing.T, noNewPrivileges bool) {
	leaked, err := unix.Open("/dev/zero", unix.O_RDONLY, 0) // without O_CLOEXEC, as some library may
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(leaked)
	w, _ := startWorker(t)
	if noNewPrivileges {
		w.last = &run{}
		w.last.Context, w.last.end = context.WithCancelCause(t.Context())
		l, err := unixsocket.Listen(w.socket)
		go func() {
			runtime.LockOSThread() // until the thread ends
			if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
				t.Error(err)
			}
			w.run(w.last, l, err)
		}()
	}
	child, _ := pid(t, handlerOf(w, t.TempDir()))
	limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", child))
	if err != nil || !regexp.MustCompile(`Max stack size +1048576 +1048576 `).Match(limits) {
		t.Errorf("the worker runs without its limits (%v):\n%s", err, limits)
	}
	adjusted, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", child))
	if err != nil || strings.TrimSpace(string(adjusted)) != "1000" {
		t.Errorf("oom_score_adj is %q (%v), want that the worker is killed before kubecri", adjusted, err)
	}
	for key, want := range map[string]string{
		"Uid": "65534 65534 65534 65534", "Gid": "65534 65534 65534 65534", "Groups": "", "NoNewPrivs": "1",
		"CapInh": none, "CapPrm": none, "CapEff": none, "CapAmb": none,
	} {
		if got := statusOf(t, child)[key]; got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
	if environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", child)); err != nil || len(environ) > 0 {
		t.Errorf("the environment is %q (%v), want none", environ, err)
	}
	// The null device twice, its log, its socket, and the connection of the Discover.
	want := []string{"/dev/null", "/dev/null", "pipe", "socket", "socket"}
	if got := descriptors(t, child); !reflect.DeepEqual(got, want) {
		t.Errorf("the descriptors are %v, want %v", got, want)
	}
}

// none are capabilities in /proc.
const none = "0000000000000000"

func statusOf(t *testing.T, pid int) map[string]string {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]string{}
	for line := range strings.Lines(string(data)) {
		key, value, _ := strings.Cut(line, ":")
		values[key] = strings.Join(strings.Fields(value), " ")
	}
	return values
}

// descriptors are what a process has open, by number, without those of Go's runtime.
func descriptors(t *testing.T, pid int) (kinds []string) {
	t.Helper()
	for fd := range 64 {
		if target, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", pid, fd)); err == nil {
			kind, _, _ := strings.Cut(target, ":")
			if kind != "anon_inode" && !strings.HasPrefix(kind, "/sys/fs/cgroup/") { // which Go's runtime opens
				kinds = append(kinds, kind)
			}
		}
	}
	return kinds
}

func TestTheWorkerEndsWithKubecri(t *testing.T) {
	t.Run("that stops", func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		child, _ := pid(t, handlerOf(NewProcess(ctx, clock.RealClock{}, socketOf(t), nil), t.TempDir()))
		stop()
		await.That(t, "the worker to end", func() bool { return !exists(child) })
	})
	t.Run("that is killed", func(t *testing.T) {
		kubecri := exec.Command(self, kubecriArgument, socketOf(t))
		kubecri.Stderr = os.Stderr
		output, err := kubecri.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := kubecri.Start(); err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(output).ReadString('\n')
		child, atoiErr := strconv.Atoi(strings.TrimSpace(line))
		_ = syscall.Kill(child, syscall.SIGSTOP) // so that it does not end by itself
		_ = kubecri.Process.Kill()
		_ = kubecri.Wait()
		if err := errors.Join(err, atoiErr); err != nil {
			t.Fatal(err)
		}
		await.That(t, "the worker to end", func() bool { return !exists(child) })
	})
}

func TestListsAndErrorsPassThrough(t *testing.T) {
	w, _ := startWorker(t)
	handler := handlerOf(w, t.TempDir())
	got := await.Next(t, "the report", discover(t, handler, "large").reports)
	if want := (discovery.Result{Shared: true, Devices: largeList()}); !reflect.DeepEqual(got, want) {
		t.Errorf("%d devices arrived, want %d, each as it was sent", len(got.Devices), len(want.Devices))
	}
	err := await.Next(t, "the error", discover(t, handler, "invalid no such key").done)
	if !errors.Is(err, discovery.ErrInvalid) || err.Error() != "test: no such key" {
		t.Errorf("Discover() = %v, want the handler's error, which is of the details", err)
	}
	err = await.Next(t, "the error", discover(t, handler, "fail no network").done)
	if err == nil || errors.Is(err, discovery.ErrInvalid) || err.Error() != "test: no network" {
		t.Errorf("Discover() = %v, want the handler's error", err)
	}
}
