package discoveryworker

import (
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// confined is the program's name when it runs anew.
	confined = "kubecri-discovery"

	// stackBytes are of each thread: the C library takes their size from the limit at a
	// process' start, and they count as data.
	stackBytes = 1 << 20

	// softMemory is where Go's garbage collector begins to work harder: below MaxMemory by what is
	// not Go's, and by what Go reserves and does not use.
	softMemory = 192 << 20

	// oomScoreAdj is the highest there is: any process may raise its own.
	oomScoreAdj = "1000"
)

// confine takes from this process, a worker, what it could gain or use up: privileges of
// programs that it runs, memory, core dumps, and descriptors that kubecri's libraries left
// open. It is also the first that the kernel ends on a node without memory, whatever kubecri is.
// Some of that counts only for a program that starts, so the first call runs the program anew, and
// does not return. A child also ends with its parent.
func confine(child bool) error {
	debug.SetMemoryLimit(softMemory)
	if os.Args[0] == confined {
		// Others of this user are not to read its memory, which has passwords.
		return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	}
	// It fails before Linux 5.11, where descriptors stay that others than Go's libraries left open.
	_ = unix.CloseRange(listenDescriptor+1, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC)
	var deathSignal syscall.Signal
	if child {
		deathSignal = syscall.SIGKILL
	}
	runtime.LockOSThread() // what prctl sets is of the thread, which runs the program anew
	err := errors.Join(
		os.WriteFile("/proc/self/oom_score_adj", []byte(oomScoreAdj), 0),
		unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(deathSignal), 0, 0, 0),
		unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
		limit(unix.RLIMIT_DATA, MaxMemory),
		limit(unix.RLIMIT_STACK, stackBytes),
		limit(unix.RLIMIT_CORE, 0),
	)
	if err != nil {
		return fmt.Errorf("confine the discovery worker: %w", err)
	}
	args := append([]string{confined}, os.Args[1:]...)
	return fmt.Errorf("run the discovery worker anew: %w", syscall.Exec(self, args, os.Environ()))
}

func limit(resource int, bytes uint64) error {
	return unix.Setrlimit(resource, &unix.Rlimit{Cur: bytes, Max: bytes})
}
