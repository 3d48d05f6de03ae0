package hostinstall

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/kubeslot/kubeslot/kubecri/install/kubeletargs"
)

// systemdRuns is there where systemd is the service manager, see sd_booted(3).
const systemdRuns = "/run/systemd/system"

// distributions are units of programs that have a kubelet in them.
var distributions = []struct{ unit, name string }{
	{"k3s.service", "k3s"}, {"k3s-agent.service", "k3s"}, {"rke2-server.service", "RKE2"}, {"rke2-agent.service", "RKE2"},
	{"snap.microk8s.daemon-kubelite.service", "MicroK8s"}, {"k0scontroller.service", "k0s"}, {"k0sworker.service", "k0s"},
}

// RunSystemctl is the Systemctl of this host.
func RunSystemctl(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "systemctl", args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return string(out), fmt.Errorf("systemctl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return string(out), nil
}

// Look reads what a Plan needs of this host. Want.Listen and Other are not looked at.
func Look(ctx context.Context, kubeletUnit string) (Host, error) {
	h := Host{Files: map[string]string{}, Kubelet: Kubelet{Unit: kubeletUnit}}
	if _, err := os.Stat(systemdRuns); err == nil {
		h.Systemd = true
	}
	if err := h.read(RecordFile, EnvFile, UnitFile, SocketFile, Program); err != nil {
		return h, err
	}
	if text, there := h.Files[RecordFile]; there {
		var err error
		if h.Record, err = ParseRecord(text); err != nil {
			return h, err
		}
	}
	if !h.Systemd {
		return h, nil
	}
	unit, err := showUnit(ctx, UnitName)
	if err != nil {
		return h, err
	}
	h.Active = unit.active
	return h, h.lookAtKubelet(ctx)
}

func (h *Host) lookAtKubelet(ctx context.Context) error {
	k := &h.Kubelet
	u, err := showUnit(ctx, k.Unit)
	if err != nil {
		return err
	}
	k.Found, k.Running = u.loaded, u.active && u.pid != 0
	if !k.Found {
		for _, d := range distributions {
			if other, err := showUnit(ctx, d.unit); err == nil && other.loaded {
				h.Distribution = d.name
				break
			}
		}
		return nil
	}
	if h.Record != nil {
		k.Args = h.Record.Args
	}
	if k.Running {
		p, is, err := kubeletargs.ReadProcess(u.pid)
		if err != nil {
			return fmt.Errorf("%s: %w", k.Unit, err)
		}
		if !is {
			k.Program, _ = os.Readlink(fmt.Sprintf("/proc/%d/exe", u.pid))
			if k.Program == "" {
				k.Program = fmt.Sprintf("process %d", u.pid)
			}
			return nil
		}
		k.Args = p.Args
	}
	k.CommandLine = u.files
	if k.Config, err = k.Args.Files(""); err != nil {
		return err
	}
	if _, err := os.Stat(kubeletargs.InstanceConfig); err == nil {
		k.Config = append(k.Config, kubeletargs.InstanceConfig)
	}
	return h.read(append(k.CommandLine, k.Config...)...)
}

// read puts the files that are there into h.Files.
func (h *Host) read(paths ...string) error {
	for _, path := range paths {
		text, err := content(path)
		if err != nil {
			return err
		}
		if text != nil {
			h.Files[path] = *text
		}
	}
	return nil
}

// content is what Host.Files has of a file; nil when it is not there.
func content(path string) (*string, error) {
	if path == Program {
		hash, err := HashFile(path)
		if hash == "" {
			return nil, err
		}
		return &hash, err
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	text := string(data)
	return &text, err
}

// unitState is what systemd knows of a unit.
type unitState struct {
	loaded, active bool
	pid            int
	// files are the unit, its drop-ins, and its environment files that are there.
	files []string
}

func showUnit(ctx context.Context, unit string) (unitState, error) {
	text, err := RunSystemctl(ctx, "show", unit,
		"--property=LoadState,ActiveState,MainPID,FragmentPath,DropInPaths,EnvironmentFiles")
	if err != nil {
		return unitState{}, err
	}
	return parseUnit(text), nil
}

func parseUnit(text string) unitState {
	var u unitState
	var environment []string
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch name {
		case "LoadState":
			u.loaded = value == "loaded"
		case "ActiveState":
			u.active = value == "active"
		case "MainPID":
			u.pid, _ = strconv.Atoi(value)
		case "FragmentPath":
			if value != "" {
				u.files = append([]string{value}, u.files...)
			}
		case "DropInPaths":
			u.files = append(u.files, strings.Fields(value)...)
		case "EnvironmentFiles": // <path> (ignore_errors=yes)
			if path, _, ok := strings.Cut(value, " (ignore_errors="); ok {
				environment = append(environment, path)
			}
		}
	}
	u.files = append(u.files, environment...)
	return u
}

// HashFile returns the hash of a file's content, as for Want.Program; "" when it is not there.
func HashFile(path string) (string, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, f); err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}
