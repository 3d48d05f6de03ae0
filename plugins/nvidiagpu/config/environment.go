package config

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Label of a Node names its file where CONFIG_FILE is a directory of files, as a ConfigMap is.
const Label = "nvidia.com/device-plugin.config"

// defaultMPSRoot is that of the chart of NVIDIA's plugin.
const defaultMPSRoot = "/run/nvidia/mps"

// Environment is what the process's environment says. It overrides files.
type Environment struct {
	// File is CONFIG_FILE: a file, or a directory of them.
	File string
	// Default is DEFAULT_CONFIG, the name of the file in the directory for a Node without Label.
	Default string
	// NVIDIALabels is GPU_LABELS=nvidia: labels with the names of NVIDIA's GPU feature discovery.
	NVIDIALabels bool
	Health       Health

	migStrategy, mpsRoot string
	passDeviceSpecs      *bool
}

// FromEnvironment reads the variables. The warnings name what has no effect.
func FromEnvironment(getenv func(string) string) (Environment, []string, error) {
	e := Environment{
		File: getenv("CONFIG_FILE"), Default: getenv("DEFAULT_CONFIG"),
		migStrategy: getenv("MIG_STRATEGY"), mpsRoot: getenv("MPS_ROOT"),
	}
	if text := getenv("PASS_DEVICE_SPECS"); text != "" {
		pass, err := strconv.ParseBool(text)
		if err != nil {
			return e, nil, fmt.Errorf("PASS_DEVICE_SPECS=%q: use true or false", text)
		}
		e.passDeviceSpecs = &pass
	}
	text := getenv("GPU_LABELS")
	if e.NVIDIALabels = text == "nvidia"; text != "" && !e.NVIDIALabels {
		return e, nil, fmt.Errorf("GPU_LABELS=%q: use nvidia, or nothing for labels of gpu.kubeslot.io/", text)
	}
	var warnings []string
	e.Health, warnings = health(getenv)
	return e, warnings, (&Config{MIGStrategy: e.migStrategy}).check()
}

// ByLabel reports whether the Node's label chooses the file.
func (e Environment) ByLabel() bool {
	stat, err := os.Stat(e.File)
	return err == nil && stat.IsDir()
}

// Load returns the configuration of a Node with the label.
func (e Environment) Load(label string) (*Config, []string, error) {
	data, name, err := e.read(label)
	if err != nil {
		return nil, nil, err
	}
	c, warnings, err := parse(data)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", name, err)
	}
	for i, w := range warnings {
		warnings[i] = name + ": " + w
	}
	c.MIGStrategy = cmp.Or(e.migStrategy, c.MIGStrategy)
	c.MPSRoot = cmp.Or(e.mpsRoot, c.MPSRoot, defaultMPSRoot)
	if e.passDeviceSpecs != nil {
		c.PassDeviceSpecs = *e.passDeviceSpecs
	}
	if err := c.check(); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", name, err)
	}
	return c, warnings, nil
}

// read returns the file of a Node with the label, and its name. Without CONFIG_FILE it is empty.
func (e Environment) read(label string) ([]byte, string, error) {
	if e.File == "" {
		return nil, "the environment", nil
	}
	name := e.File
	if e.ByLabel() {
		file, err := e.choose(label)
		if err != nil {
			return nil, "", err
		}
		name = filepath.Join(name, file)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, "", fmt.Errorf("CONFIG_FILE: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, "", fmt.Errorf("CONFIG_FILE: %w", err)
	}
	return data, name, nil
}

// choose returns the name of the file in the directory: the label's, the default's, the one
// named "default", or the only one.
func (e Environment) choose(label string) (string, error) {
	entries, err := os.ReadDir(e.File)
	if err != nil {
		return "", fmt.Errorf("CONFIG_FILE: %w", err)
	}
	var names []string
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), ".") { // a ConfigMap's volume has ..data
			names = append(names, entry.Name())
		}
	}
	name := cmp.Or(label, e.Default, "default")
	switch {
	case slices.Contains(names, name):
		return name, nil
	case label == "" && e.Default == "" && len(names) == 1:
		return names[0], nil
	}
	return "", fmt.Errorf("%s has no file %q, which this Node is to have. It has %d files: %.300s. "+
		"Add that one, or set the Node's label %s to one of these",
		e.File, name, len(names), strings.Join(names, ", "), Label)
}
