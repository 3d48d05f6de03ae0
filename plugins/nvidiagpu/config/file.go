package config

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// maxFile is in bytes: as large as a ConfigMap can be.
const maxFile = 1 << 20

// file is what has an effect of the format.
type file struct {
	Version string `json:"version"`
	Flags   struct {
		MIGStrategy string `json:"migStrategy"`
		MPSRoot     string `json:"mpsRoot"`
		Plugin      struct {
			PassDeviceSpecs bool `json:"passDeviceSpecs"`
		} `json:"plugin"`
	} `json:"flags"`
	Sharing struct {
		TimeSlicing *sharing `json:"timeSlicing"`
		MPS         *sharing `json:"mps"`
	} `json:"sharing"`
}

type sharing struct {
	RenameByDefault            bool       `json:"renameByDefault"`
	FailRequestsGreaterThanOne bool       `json:"failRequestsGreaterThanOne"`
	Resources                  []resource `json:"resources"`
}

type resource struct {
	Name     string `json:"name"`
	Rename   string `json:"rename"`
	Devices  any    `json:"devices"` // "all", or nothing; else a warning
	Replicas int64  `json:"replicas"`
}

// defaults are NVIDIA's of keys that have no effect here. Examples spell them out.
var defaults = map[string]string{
	"flags.failOnInitError":           "true",
	"flags.nvidiaDriverRoot":          "/",
	"flags.nvidiaDevRoot":             "/",
	"flags.gdrcopyEnabled":            "false",
	"flags.gdsEnabled":                "false",
	"flags.mofedEnabled":              "false",
	"flags.useNodeFeatureAPI":         "false",
	"flags.deviceDiscoveryStrategy":   "auto",
	"flags.plugin.deviceListStrategy": "envvar",
	"flags.plugin.deviceIDStrategy":   "uuid",
}

// parse reads a file, YAML or JSON. The warnings name what has no effect in it, the error what cannot be. The
// environment may override what it says: see check.
func parse(data []byte) (*Config, []string, error) {
	if len(data) > maxFile {
		return nil, nil, fmt.Errorf("the file has more than %d bytes", maxFile)
	}
	text, err := yaml.YAMLToJSONStrict(data) // refuses a key that is there twice
	if err != nil {
		return nil, nil, err
	}
	var f file
	unknown, err := json.UnmarshalStrict(text, &f, json.DisallowUnknownFields)
	if err != nil {
		return nil, nil, errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	if f.Version != "" && f.Version != "v1" {
		return nil, nil, fmt.Errorf("version %q: use v1", f.Version)
	}
	if f.Sharing.TimeSlicing != nil && f.Sharing.MPS != nil {
		return nil, nil, errors.New("sharing.timeSlicing and sharing.mps: use one of them")
	}
	c := &Config{
		MIGStrategy: f.Flags.MIGStrategy, PassDeviceSpecs: f.Flags.Plugin.PassDeviceSpecs, MPSRoot: f.Flags.MPSRoot,
	}
	warnings := withoutEffect(text, unknown)
	for section, from := range map[string]*sharing{"timeSlicing": f.Sharing.TimeSlicing, "mps": f.Sharing.MPS} {
		if from == nil {
			continue
		}
		ignored, err := c.share(from, section == "mps")
		if err != nil {
			return nil, nil, fmt.Errorf("sharing.%s.resources%w", section, err)
		}
		for _, key := range ignored {
			warnings = append(warnings, fmt.Sprintf("sharing.%s.resources%s has no effect", section, key))
		}
	}
	return c, warnings, nil
}

// share takes a section's entries. It returns the keys without effect.
func (c *Config) share(from *sharing, mps bool) (ignored []string, err error) {
	if len(from.Resources) == 0 {
		return nil, errors.New(": there are none")
	}
	limit := int64(maxReplicas)
	if mps {
		limit = maxMPS
	}
	c.shares = map[string]Share{}
	names := map[string]bool{} // that are advertised
	for i, entry := range from.Resources {
		kind, err := kindOf(entry.Name)
		if err != nil {
			return nil, fmt.Errorf("[%d]: name %w", i, err)
		}
		to, err := entry.renamed(kind, from.RenameByDefault)
		if err != nil {
			return nil, fmt.Errorf("[%d]: %w", i, err)
		}
		if _, twice := c.shares[kind]; twice || names[to] {
			return nil, fmt.Errorf("[%d]: %s, advertised as %s, overlaps with an entry before it", i, kind, to)
		}
		if entry.Replicas < 2 || entry.Replicas > limit {
			return nil, fmt.Errorf("[%d]: replicas of %s are %d: use 2 to %d", i, kind, entry.Replicas, limit)
		}
		if entry.Devices != nil && entry.Devices != "all" {
			ignored = append(ignored, fmt.Sprintf("[%d].devices", i))
		}
		names[to] = true
		// NVIDIA's plugin refuses more than one replica through MPS, whatever the file says.
		fail := mps || from.FailRequestsGreaterThanOne
		c.shares[kind] = Share{Kind: to, Replicas: entry.Replicas, MPS: mps, FailAboveOne: fail}
	}
	return ignored, nil
}

// withoutEffect names the keys that are not known, but for those that have their defaults.
func withoutEffect(text []byte, unknown []error) (warnings []string) {
	var all map[string]any
	_ = json.UnmarshalCaseSensitivePreserveInts(text, &all) // has been read before
	for _, err := range unknown {
		var field json.FieldError
		if !errors.As(err, &field) {
			continue
		}
		key := field.FieldPath()
		value, _, _ := unstructured.NestedFieldNoCopy(all, strings.Split(key, ".")...)
		// deviceListStrategy can be a list of one.
		if fallback, ok := defaults[key]; !ok || strings.Trim(fmt.Sprint(value), "[]") != fallback {
			warnings = append(warnings, key+" has no effect")
		}
	}
	return warnings
}
