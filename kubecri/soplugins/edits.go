package soplugins

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation"
	"tags.cncf.io/container-device-interface/pkg/parser"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/kubecri/inject"
	"github.com/kubeslot/kubeslot/types/contain"
	"github.com/kubeslot/kubeslot/types/device"
)

// maxVariables bounds a plugin's variables in a container, in bytes with a pointer to each: a quarter of
// what Linux has for all variables and arguments of a process, unless its limit of the stack is changed.
const maxVariables = 512 << 10

// given is what Allocate returned.
type given struct {
	mounts  []device.Mount
	devices []string
	env     map[string]string
}

// edits checks what Allocate returned, and returns it as the plugin's edits: the container would fail later and less
// clearly, or run without its device. Of a mount's host path the runtime would
// make a directory if there is none.
func edits(plugin string, g given) (inject.Edits, error) {
	e := inject.Edits{Owner: inject.PluginOwner(plugin)}
	for _, m := range g.mounts {
		for _, path := range []string{m.ContainerPath, m.HostPath} {
			if err := checkPath(path); err != nil {
				return e, fmt.Errorf("%w: a mount of %q at %q: %v", contain.ErrInvalid, m.HostPath, m.ContainerPath,
					err)
			}
		}
		if m.ContainerPath == "/" {
			return e, fmt.Errorf("%w: a mount of %q at /, the container's root", contain.ErrInvalid, m.HostPath)
		}
		if _, err := os.Stat(m.HostPath); err != nil {
			return e, fmt.Errorf("%w: a mount at %q: %v", contain.ErrInvalid, m.ContainerPath, err)
		}
		e.Mounts = append(e.Mounts, discovery.Mount{ContainerPath: m.ContainerPath, HostPath: m.HostPath, ReadOnly: m.Readonly})
	}
	for _, d := range g.devices {
		if qualified(d) {
			e.CDI = append(e.CDI, d)
			continue
		}
		if err := checkDevice(d); err != nil {
			return e, fmt.Errorf("%w: the device %q: %v", contain.ErrInvalid, d, err)
		}
		e.Devices = append(e.Devices, discovery.DeviceSpec{ContainerPath: d, HostPath: d})
	}
	bytes := 0
	for _, name := range slices.Sorted(maps.Keys(g.env)) {
		if bytes += len(name) + len(g.env[name]) + 2 + 8; bytes > maxVariables {
			return inject.Edits{}, fmt.Errorf("%w: %d variables that take more than the %d bytes that a plugin's may",
				contain.ErrInvalid, len(g.env), maxVariables)
		}
		if problems := validation.IsRelaxedEnvVarName(name); len(problems) > 0 {
			return e, fmt.Errorf("%w: the variable %q: %s", contain.ErrInvalid, name, strings.Join(problems, "; "))
		}
		if name == inject.DevicesEnv {
			return e, fmt.Errorf("%w: the variable %s is kubecri's own", contain.ErrInvalid, name)
		}
		if strings.Contains(g.env[name], "\x00") {
			return e, fmt.Errorf("%w: the value of the variable %q has a NUL, which no process can have",
				contain.ErrInvalid, name)
		}
		if len(name)+len(g.env[name])+2 > inject.MaxEnvBytes {
			return e, fmt.Errorf("%w: the variable %q has %d bytes, and Linux starts no process with one of more than %d",
				contain.ErrInvalid, name, len(g.env[name]), inject.MaxEnvBytes)
		}
		e.Env = append(e.Env, inject.Variable{Name: name, Value: g.env[name]})
	}
	return e, nil
}

// qualified reports whether a device is named by CDI. Vendors and classes of one
// character count as none: the CDI library of v1.1.0, which runtimes have too,
// panics over them.
func qualified(name string) bool {
	kind, _, _ := strings.Cut(name, "=")
	vendor, class, _ := strings.Cut(kind, "/")
	return len(vendor) > 1 && len(class) > 1 && parser.IsQualifiedName(name)
}

func checkPath(path string) error {
	switch {
	case !filepath.IsAbs(path):
		return fmt.Errorf("%q is not an absolute path", path)
	case filepath.Clean(path) != path:
		return fmt.Errorf("%q is not a clean path, which is %q", path, filepath.Clean(path))
	case strings.Contains(path, "\x00") || !utf8.ValidString(path):
		return fmt.Errorf("%q is not a path", path)
	}
	return nil
}

// checkDevice wants a device node, or a link to one, as the runtime does.
func checkDevice(path string) error {
	if err := checkPath(path); err != nil {
		return fmt.Errorf("%w, nor a CDI name such as vendor.com/class=name", err)
	}
	stat, err := os.Stat(path)
	if err != nil {
		return err
	}
	if stat.Mode()&os.ModeDevice == 0 {
		return fmt.Errorf("not a device node but %s", stat.Mode().Type())
	}
	return nil
}
