package kubeletargs

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
)

// Process is a kubelet that runs.
type Process struct {
	PID     int
	Args    Arguments
	Started time.Time
}

// Root is the process's root directory, as seen from here.
func (p Process) Root() string { return fmt.Sprintf("/proc/%d/root", p.PID) }

// Changed returns the file of the process's configuration that was changed last
// after the process read it; "" for none. A change within two seconds of the
// process's start counts as read.
func (p Process) Changed() (string, error) {
	files, err := p.Args.Files(p.Root())
	if err != nil {
		return "", err
	}
	changed, at := "", p.Started.Add(2*time.Second) // Started is exact to a second
	for _, path := range files {
		info, err := os.Stat(path)
		if err != nil {
			return "", err
		}
		if info.ModTime().After(at) {
			changed, at = strings.TrimPrefix(path, p.Root()), info.ModTime()
		}
	}
	return changed, nil
}

// Running returns the kubelets that are seen in proc, which is /proc. In a container
// with a process namespace of its own there are none.
func Running(proc string) (all []Process, err error) {
	mounted, err := procfs.NewFS(proc)
	if err != nil {
		return nil, err
	}
	processes, err := mounted.AllProcs()
	if err != nil {
		return nil, err
	}
	sort.Sort(processes)
	for _, process := range processes {
		p, is, err := read(process)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ESRCH) { // it has ended
			return nil, err
		}
		if is {
			all = append(all, p)
		}
	}
	return all, nil
}

// ReadProcess returns the kubelet of the process id; false when it is none.
func ReadProcess(pid int) (Process, bool, error) {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return Process{}, false, err
	}
	return read(process)
}

func read(process procfs.Proc) (p Process, is bool, err error) {
	line, err := process.CmdLine()
	if err != nil || len(line) == 0 { // a thread of the kernel
		return Process{}, false, err
	}
	if filepath.Base(line[0]) != "kubelet" {
		return Process{}, false, nil
	}
	stat, err := process.Stat()
	if err != nil {
		return Process{}, false, err
	}
	started, err := stat.StartTime()
	if err != nil {
		return Process{}, false, err
	}
	return Process{process.PID, ParseArguments(line[1:]), time.UnixMilli(int64(started * 1000))}, true, nil
}

// Of returns the kubelet of the node among those that run: the only one that there is,
// or the one whose --hostname-override, else the host's name, is the node's.
func Of(node string, running []Process) (Process, bool) {
	if len(running) == 1 {
		return running[0], true
	}
	host, _ := os.Hostname()
	for _, p := range running {
		if strings.EqualFold(cmp.Or(p.Args.HostnameOverride, host), node) {
			return p, true
		}
	}
	return Process{}, false
}
