package kubeletargs

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// DefaultEndpoint is the kubelet's own default for the runtime's socket.
const DefaultEndpoint = "unix:///run/containerd/containerd.sock"

// SameSocket compares endpoints, with or without unix://; /var/run is /run.
func SameSocket(a, b string) bool { return socket(a) == socket(b) }

func socket(endpoint string) string {
	path := filepath.Clean(strings.TrimPrefix(endpoint, "unix://"))
	if rest, ok := strings.CutPrefix(path, "/var/run/"); ok {
		return "/run/" + rest
	}
	return path
}

// Arguments are what a kubelet's command line says of the things that concern
// kubecri; "" for what it does not say.
type Arguments struct {
	Config, ConfigDir string
	RuntimeEndpoint   string
	HostnameOverride  string
	Kubeconfig        string
}

// ParseArguments reads a kubelet's command line without the program's name. Of a
// flag that is given twice the last one counts, as in the kubelet.
func ParseArguments(args []string) Arguments {
	var a Arguments
	values := map[string]*string{
		"config": &a.Config, "config-dir": &a.ConfigDir, "container-runtime-endpoint": &a.RuntimeEndpoint,
		"hostname-override": &a.HostnameOverride, "kubeconfig": &a.Kubeconfig,
	}
	for i := 0; i < len(args) && args[i] != "--"; i++ {
		text, long := strings.CutPrefix(args[i], "--")
		if !long {
			continue
		}
		name, value, hasValue := strings.Cut(text, "=")
		name = strings.ReplaceAll(name, "_", "-")
		to := values[name]
		if !hasValue && (to != nil || flags[name]) && i+1 < len(args) {
			i++
			value = args[i]
		}
		if to != nil {
			*to = value
		}
	}
	return a
}

// Endpoint returns where a kubelet with these arguments expects the runtime, and
// what says so: a flag, a file, or the kubelet's default. root is put before the
// paths of files, "" for none.
func (a Arguments) Endpoint(root string) (endpoint, from string, err error) {
	if a.RuntimeEndpoint != "" {
		return a.RuntimeEndpoint, "its flag --container-runtime-endpoint", nil
	}
	files, err := ConfigFiles(under(root, a.Config), under(root, a.ConfigDir))
	if err != nil {
		return "", "", err
	}
	endpoint, from = DefaultEndpoint, "the kubelet's default"
	for _, path := range files {
		c, err := readConfiguration(path)
		if err != nil {
			return "", "", err
		}
		if c.ContainerRuntimeEndpoint != "" {
			endpoint, from = c.ContainerRuntimeEndpoint, strings.TrimPrefix(path, root)
		}
	}
	return endpoint, from, nil
}

// under puts root before a path, if there is one.
func under(root, path string) string {
	if path == "" {
		return ""
	}
	return root + path
}

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
	files, err := ConfigFiles(under(p.Root(), p.Args.Config), under(p.Root(), p.Args.ConfigDir))
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
func Running(proc string) ([]Process, error) {
	names, err := filepath.Glob(filepath.Join(proc, "[1-9]*"))
	if err != nil {
		return nil, err
	}
	var all []Process
	for _, dir := range names {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		p, ok, err := readProcess(dir, pid)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // it has ended
			return nil, err
		}
		if ok {
			all = append(all, p)
		}
	}
	return all, nil
}

// ReadProcess returns the kubelet of the process id; false when it is none.
func ReadProcess(pid int) (Process, bool, error) {
	return readProcess(filepath.Join("/proc", strconv.Itoa(pid)), pid)
}

func readProcess(dir string, pid int) (Process, bool, error) {
	line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
	if err != nil {
		return Process{}, false, err
	}
	program, rest, _ := strings.Cut(strings.TrimSuffix(string(line), "\x00"), "\x00")
	args := strings.Split(rest, "\x00")
	switch filepath.Base(program) {
	case "kubelet":
	case "hyperkube":
		if args[0] != "kubelet" {
			return Process{}, false, nil
		}
	default:
		return Process{}, false, nil
	}
	started, err := startTime(dir)
	if err != nil {
		return Process{}, false, err
	}
	return Process{PID: pid, Args: ParseArguments(args), Started: started}, true, nil
}

// startTime reads when the process began: field 22 of stat, in hundredths of a
// second since boot.
func startTime(dir string) (time.Time, error) {
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return time.Time{}, err
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 {
		return time.Time{}, fmt.Errorf("%s/stat has %d fields", dir, len(fields))
	}
	ticks, err := strconv.ParseInt(string(fields[19]), 10, 64)
	if err != nil {
		return time.Time{}, err
	}
	system, err := os.ReadFile(filepath.Join(filepath.Dir(dir), "stat"))
	if err != nil {
		return time.Time{}, err
	}
	for line := range bytes.Lines(system) {
		if seconds, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("btime ")); ok {
			boot, err := strconv.ParseInt(string(seconds), 10, 64)
			return time.Unix(boot, 0).Add(time.Duration(ticks) * (time.Second / 100)), err
		}
	}
	return time.Time{}, errors.New("/proc/stat has no btime")
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
