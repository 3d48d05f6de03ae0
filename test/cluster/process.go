package cluster

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Component names of a cluster's processes.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
	Kubelet           = "kubelet"
	Containerd        = "containerd"
	Kubecri           = "kubecri"
	Controller        = "controller"
	// Forwarder listens on the host's loopback and leads to the API server.
	Forwarder = "forward"
)

// envMarker in a process's environment names the state folder of its cluster.
const envMarker = "KUBESLOT_CLUSTER"

// processID names a component in files: component, or component-node.
func processID(component, node string) string {
	if node == "" {
		return component
	}
	return component + "-" + node
}

// identity is a process for as long as the machine runs. A pid alone is handed
// out again; with its start time and this boot it is not.
type identity struct {
	PID        int    `json:"pid"`
	StartTicks uint64 `json:"startTicks"` // clock ticks since boot, proc(5) field 22
	Boot       string `json:"boot"`
}

// identify returns the identity of a process that lives; ok is false when there
// is none, or only a zombie that waits for its parent. A process whose first
// thread is a zombie lives on in the others, and has its ports, until they end.
func identify(pid int) (identity, bool) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return identity{}, false
	}
	state, threads, ticks, err := parseStat(string(stat))
	if err != nil || state == 'X' || state == 'Z' && threads <= 1 {
		return identity{}, false
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return identity{}, false
	}
	return identity{PID: pid, StartTicks: ticks, Boot: strings.TrimSpace(string(boot))}, true
}

// parseStat reads a process's state, number of threads and start time from /proc/<pid>/stat. Its
// second field is the command in parentheses, which may hold blanks and ")". (A listing of
// /proc/<pid>/task may lack threads while others end.)
func parseStat(stat string) (state byte, threads, startTicks uint64, err error) {
	end := strings.LastIndexByte(stat, ')')
	fields := strings.Fields(stat[end+1:])
	if end < 0 || len(fields) < 20 {
		return 0, 0, 0, fmt.Errorf("unexpected content of /proc/<pid>/stat: %q", stat)
	}
	threads, errThreads := strconv.ParseUint(fields[17], 10, 64)
	startTicks, errTicks := strconv.ParseUint(fields[19], 10, 64)
	return fields[0][0], threads, startTicks, errors.Join(errThreads, errTicks)
}

func (id identity) alive() bool {
	now, ok := identify(id.PID)
	return ok && now == id
}

// stopped reports whether all threads of the process have stopped. On a busy machine one that
// was running goes on for a while after the signal.
func (id identity) stopped() bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", id.PID))
	if err != nil {
		return false
	}
	for _, thread := range threads {
		stat, err := os.ReadFile(thread)
		if err != nil {
			continue // it has ended
		}
		if state, _, _, err := parseStat(string(stat)); err != nil || state != 'T' && state != 'Z' && state != 'X' {
			return false
		}
	}
	return true
}

// signal reaches this process or none: the handle is taken before the identity
// is checked, and a handle (pidfd) never passes to another process.
func (id identity) signal(sig syscall.Signal) error {
	handle, err := os.FindProcess(id.PID)
	if err != nil {
		return err
	}
	defer handle.Release()
	if !id.alive() {
		return os.ErrProcessDone
	}
	return handle.Signal(sig)
}

// process is a component's process as recorded in the state folder: enough to
// find it, and to start it again the same way.
type process struct {
	Component string   `json:"component"`
	Node      string   `json:"node,omitempty"`
	Argv      []string `json:"argv"`
	Env       []string `json:"env,omitempty"`
	// NetNS and MountNS are where it runs; empty is the host's.
	NetNS   string   `json:"netNS,omitempty"`
	MountNS string   `json:"mountNS,omitempty"`
	Started identity `json:"started"`
}

func (p *process) String() string {
	if p.Node == "" {
		return p.Component
	}
	return p.Component + " on " + p.Node
}

// start runs the process detached from this one: in a session of its own, with
// its output appended to its log.
func (l layout) start(p *process) error {
	log, err := os.OpenFile(l.logOf(p.Component, p.Node), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	// Not the root: a kubelet cleans up files by patterns, and a pattern without a
	// directory is looked for in the working directory.
	work := l.workOf(p.Component, p.Node)
	if err := os.MkdirAll(work, 0o755); err != nil {
		return err
	}
	argv := p.Argv
	if p.NetNS != "" {
		// nsenter and env exec, so the pid is the component's. `ip netns exec` would
		// remount /sys and hide the cgroups.
		enter := []string{"nsenter", "--net=" + p.NetNS}
		if p.MountNS != "" {
			// To enter a mount namespace is to be in its root.
			enter = append(enter, "--mount="+p.MountNS, "env", "--chdir="+work)
		}
		argv = append(enter, argv...)
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = work
	cmd.Env = append(append(inheritedEnv(), p.Env...), envMarker+"="+l.dir)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	fmt.Fprintf(log, "--- %s %s\n", time.Now().Format(time.RFC3339), strings.Join(argv, " "))
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p, err)
	}
	go func() { _ = cmd.Wait() }() // else it stays a zombie while this process lives
	// It may have ended already: the zero start time then matches no process.
	p.Started, _ = identify(cmd.Process.Pid)
	return l.record(p)
}

// inheritedEnv is what components get of this process's environment: nothing that
// would lead them astray, like a proxy or somebody's KUBECONFIG.
func inheritedEnv() []string {
	var env []string
	for _, name := range []string{"PATH", "HOME", "GOCOVERDIR", "GORACE", "GODEBUG", "GOTRACEBACK"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

func (l layout) recordOf(component, node string) string {
	return filepath.Join(l.procs(), processID(component, node)+".json")
}

func (l layout) record(p *process) error {
	data, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	return writeAtomic(l.recordOf(p.Component, p.Node), data)
}

// process reads back what record wrote.
func (l layout) process(component, node string) (*process, error) {
	data, err := os.ReadFile(l.recordOf(component, node))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("the cluster in %s has no %s", l.dir, &process{Component: component, Node: node})
	}
	if err != nil {
		return nil, err
	}
	p := &process{}
	if err := json.Unmarshal(data, p); err != nil {
		return nil, fmt.Errorf("%s: %w", l.recordOf(component, node), err)
	}
	return p, nil
}

// processes reads every record that can be read, in the order of their names.
func (l layout) processes() []*process {
	files, _ := filepath.Glob(filepath.Join(l.procs(), "*.json"))
	var all []*process
	for _, file := range files {
		data, err := os.ReadFile(file)
		p := &process{}
		if err == nil && json.Unmarshal(data, p) == nil {
			all = append(all, p)
		}
	}
	return all
}

// logTail returns the last lines of a component's log.
func (l layout) logTail(p *process, lines int) string {
	data, err := os.ReadFile(l.logOf(p.Component, p.Node))
	if err != nil {
		return err.Error()
	}
	all := bytes.Split(bytes.TrimSpace(data), []byte("\n"))
	if len(all) > lines {
		all = all[len(all)-lines:]
	}
	return string(bytes.Join(all, []byte("\n")))
}

// writeAtomic replaces a file in one step: a reader, or a kill -9, sees the old
// content or the new.
func writeAtomic(path string, data []byte) error {
	temp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	_, err = temp.Write(data)
	if err := errors.Join(err, temp.Close()); err != nil {
		os.Remove(temp.Name())
		return err
	}
	return os.Rename(temp.Name(), path)
}
