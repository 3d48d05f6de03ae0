package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// node is a device node that a container gets.
type node struct {
	Host string // its path on this machine
	Path string // its path in the container, below /dev
}

// container is what a child process is to apply and to try.
type container struct {
	Nodes []node
	// Others are device nodes that it must not be able to open.
	Others []string
	// CUDA is libcuda's name or path.
	CUDA string
	// Bytes are how many it copies to each GPU and back.
	Bytes int
	// Staging is a directory of this machine that the child mounts over.
	Staging string
}

// outcome is what the child found.
type outcome struct {
	// UUIDs are those of the GPUs that CUDA sees, without "GPU-" or "MIG-".
	UUIDs []string
	// NoCUDA says why CUDA did not start: where no GPU is given, that is right.
	NoCUDA string
	// Errors are of the GPUs that were tried.
	Errors []string
	// Opened are those of the others that could be opened.
	Opened []string
}

// The first arguments by which this program calls itself.
const (
	isolateArgument = "isolate" // in new namespaces: mount the container's /dev, then become the next
	tryArgument     = "try"     // in the container: try the GPUs
)

// isolation is a way to have a process see other device nodes than its parent's.
type isolation struct {
	name  string
	flags uintptr // of clone(2); 0 for none
}

var isolations = []isolation{
	{"a mount namespace", unix.CLONE_NEWNS},
	{"a mount namespace in a user namespace", unix.CLONE_NEWNS | unix.CLONE_NEWUSER},
}

// childTimeout bounds a child: CUDA's start initialises all GPUs that it sees, which takes seconds each.
const childTimeout = 3 * time.Minute

// run applies the container in a child process with the isolation, and returns what it found. It returns an error if
// nothing could be tried.
func (c container) run(ctx context.Context, by isolation) (outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, childTimeout)
	defer cancel()
	argument := tryArgument
	if by.flags != 0 {
		argument = isolateArgument
		staging, err := os.MkdirTemp("", "test-gpu-*")
		if err != nil {
			return outcome{}, err
		}
		defer os.Remove(staging) // what the child mounted on it is in the child's namespace alone
		c.Staging = staging
	}
	text, err := json.Marshal(c)
	if err != nil {
		return outcome{}, err
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "/proc/self/exe", argument, string(text))
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: by.flags}
	if by.flags&unix.CLONE_NEWUSER != 0 {
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	if err := cmd.Run(); err != nil {
		return outcome{}, fmt.Errorf("in %s: %w: %s", by.name, err, bytes.TrimSpace(stderr.Bytes()))
	}
	var found outcome
	if err := json.Unmarshal(stdout.Bytes(), &found); err != nil {
		return outcome{}, fmt.Errorf("in %s: %w: %s", by.name, err, stdout.Bytes())
	}
	return found, nil
}

// child is what this program does when it has called itself with the arguments. It does not return.
func child(args []string) {
	runtime.LockOSThread() // capabilities and CUDA contexts are a thread's
	var c container
	err := json.Unmarshal([]byte(args[1]), &c)
	if err == nil && args[0] == isolateArgument {
		err = c.mountDevices()
		if err == nil {
			err = become(tryArgument, args[1])
		}
	} else if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(c.try())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// always are the device nodes that each container has.
var always = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"}

// mountDevices mounts a /dev that has the container's nodes alone. This process has a mount namespace of its own.
func (c container) mountDevices() error {
	// Nothing of the following is seen outside.
	if err := unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	// The machine's /dev will be hidden by the container's, so each node is first mounted elsewhere.
	if err := unix.Mount("tmpfs", c.Staging, "tmpfs", unix.MS_NOSUID, ""); err != nil {
		return fmt.Errorf("mount %s: %w", c.Staging, err)
	}
	nodes := slices.Clone(c.Nodes)
	for _, path := range always {
		nodes = append(nodes, node{path, path})
	}
	for i, n := range nodes {
		if err := bind(n.Host, c.staged(i)); err != nil {
			return err
		}
	}
	// A node that a library makes by itself cannot be used on this file system.
	const flags = unix.MS_NOSUID | unix.MS_NOEXEC | unix.MS_NODEV
	if err := unix.Mount("tmpfs", "/dev", "tmpfs", flags, "mode=0755"); err != nil {
		return fmt.Errorf("mount /dev: %w", err)
	}
	for i, n := range nodes {
		if err := bind(c.staged(i), n.Path); err != nil {
			return err
		}
	}
	if err := unix.Unmount(c.Staging, unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount %s: %w", c.Staging, err)
	}
	return nil
}

// become runs this program anew in this process, without the capabilities to make device nodes and to mount others. A
// container's device cgroup would forbid to use such nodes.
func become(args ...string) error {
	for _, capability := range []uintptr{unix.CAP_MKNOD, unix.CAP_SYS_ADMIN} {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, capability, 0, 0, 0); err != nil {
			return fmt.Errorf("give up capability %d: %w", capability, err)
		}
	}
	return unix.Exec("/proc/self/exe", append([]string{os.Args[0]}, args...), os.Environ())
}

func (c container) staged(i int) string { return filepath.Join(c.Staging, fmt.Sprint(i)) }

// bind mounts a device node on a file, which it makes.
func bind(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(to, nil, 0o600); err != nil {
		return err
	}
	if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s on %s: %w", from, to, err)
	}
	return nil
}

// try has CUDA use each GPU that it sees, and tries to open the device nodes that were not given.
func (c container) try() outcome {
	var o outcome
	for _, path := range c.Others {
		if opens(path) {
			o.Opened = append(o.Opened, path)
		}
	}
	library, err := openCUDA(c.CUDA)
	var n int
	if err == nil {
		n, err = library.devices()
	}
	if err != nil {
		o.NoCUDA = err.Error()
		return o
	}
	for i := range n {
		uuid, err := library.uuid(i)
		if err == nil {
			o.UUIDs = append(o.UUIDs, uuid)
			err = library.copy(i, c.Bytes)
		}
		if err != nil {
			o.Errors = append(o.Errors, fmt.Sprintf("GPU %d %s: %v", i, uuid, err))
		}
	}
	// CUDA has made what nodes it could by itself: look again.
	for _, path := range c.Others {
		if opens(path) && !slices.Contains(o.Opened, path) {
			o.Opened = append(o.Opened, path)
		}
	}
	return o
}

// opens reports whether the device node can be opened. A failure other than that it is not there, or not permitted, is
// of a driver, to which the node then leads.
func opens(path string) bool {
	for _, flag := range []int{os.O_RDWR, os.O_RDONLY} { // those of MIG slices can only be read
		file, err := os.OpenFile(path, flag, 0)
		if err == nil {
			file.Close()
		}
		if err == nil || !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
			return true
		}
	}
	return false
}
