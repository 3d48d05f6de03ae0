// Package footprint gives back memory that only the start of a process needed.
//
// A good part of a large Go program is read once: the initialisation of its
// packages, the symbols that are there for plugins, types that are registered and
// never met. Linux keeps such pages mapped, and on a recent kernel whatever shares
// a 2 MiB folio with them; they count as the process's resident memory, and the
// kernel cannot tell that nobody needs them. So they are unmapped once. They are
// clean pages of the program's file: what is needed again is mapped again from the
// page cache, at a microsecond a fault.
//
// A start also leaves garbage of its own, of the objects that were listed and
// decoded, which the runtime would hold on to for minutes in case of more.
package footprint

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
)

// startUp is when a process has started, caches and connections included.
const startUp = 10 * time.Second

// AfterStart waits until the process has started, and gives back what it had needed
// for that. It returns when ctx is done at the latest.
func AfterStart(ctx context.Context) {
	select {
	case <-time.After(startUp):
	case <-ctx.Done():
		return
	}
	debug.FreeOSMemory()
	if err := Release(); err != nil { // it is an optimisation
		klog.FromContext(ctx).V(2).Info("Cannot give back the memory of the start", "reason", err)
	}
}

// Release unmaps the program's own pages until they are used again.
func Release() error {
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	smaps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return err
	}
	for _, m := range clean(string(smaps), exe) {
		// By address: there is no slice of Go's for the program itself.
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, m.from, m.to-m.from, unix.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("madvise %x-%x: %w", m.from, m.to, errno)
		}
	}
	return nil
}

// mapping is a range of addresses.
type mapping struct{ from, to uintptr }

// clean returns the file's mappings that hold nothing but the file: not writable,
// and without a page of the process's own. A linker's relocations, which are
// written and then protected, or a debugger's breakpoints would be lost.
func clean(smaps, file string) []mapping {
	var found []mapping
	var m mapping
	of := false // the file's
	for line := range strings.Lines(smaps) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		var from, to uintptr
		if n, _ := fmt.Sscanf(fields[0], "%x-%x", &from, &to); n == 2 && !strings.HasSuffix(fields[0], ":") {
			m = mapping{from, to}
			of = len(fields) >= 6 && strings.Join(fields[5:], " ") == file && strings.HasPrefix(fields[1], "r-") && strings.HasSuffix(fields[1], "p")
			continue
		}
		if of && fields[0] == "Anonymous:" && fields[1] == "0" {
			found = append(found, m)
		}
	}
	return found
}
