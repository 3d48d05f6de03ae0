package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const sharedGPU = "version: v1\nsharing:\n  timeSlicing:\n    resources:\n    - {name: nvidia.com/gpu, replicas: 4}\n"

// load reads a file as it is without variables.
func load(data []byte) (*Config, []string, error) {
	c, warnings, err := parse(data)
	if err == nil {
		err = c.check()
	}
	return c, warnings, err
}

// What has an effect is read, with the names as NVIDIA's plugin understands them.
func TestParse(t *testing.T) {
	gpu, slice := Share{Kind: "gpu", Replicas: 1}, Share{Kind: "mig-1g.10gb", Replicas: 1}
	for name, test := range map[string]struct {
		file   string
		config Config
		shares []Share // of gpu and mig-1g.10gb
	}{
		"empty":  {"", Config{MIGStrategy: MIGNone}, []Share{gpu, slice}},
		"shared": {sharedGPU, Config{MIGStrategy: MIGNone}, []Share{{"gpu", 4, false, false}, slice}},
		"JSON, without version": {
			`{"flags": {"migStrategy": "single", "plugin": {"passDeviceSpecs": true}}}`,
			Config{MIGStrategy: MIGSingle, PassDeviceSpecs: true}, []Share{gpu, slice},
		},
		"renamed by default": {`
flags: {migStrategy: mixed}
sharing:
  timeSlicing:
    renameByDefault: true
    failRequestsGreaterThanOne: true
    resources:
    - {name: gpu, replicas: 2, devices: all}
    - {name: nvidia.com/mig-1g.10gb, replicas: 1024, rename: nvidia.com/small}
`, Config{MIGStrategy: MIGMixed}, []Share{{"gpu.shared", 2, false, true}, {"small", 1024, false, true}}},
		"renamed to itself": {
			"sharing: {timeSlicing: {resources: [{name: gpu, rename: nvidia.com/gpu, replicas: 3}]}}",
			Config{MIGStrategy: MIGNone}, []Share{{"gpu", 3, false, false}, slice},
		},
		"MPS fails above one": {`
flags: {mpsRoot: /mps}
sharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 48}]}}
`, Config{MIGStrategy: MIGNone, MPSRoot: "/mps"}, []Share{{"gpu", 48, true, true}, slice}},
		"defaults of NVIDIA's examples": {`
version: v1
flags:
  migStrategy: "none"
  failOnInitError: true
  nvidiaDriverRoot: "/"
  plugin: {passDeviceSpecs: false, deviceListStrategy: [envvar], deviceIDStrategy: "uuid"}
`, Config{MIGStrategy: MIGNone}, []Share{gpu, slice}},
	} {
		c, warnings, err := load([]byte(test.file))
		if err != nil || len(warnings) > 0 {
			t.Errorf("%s: %q, %v", name, warnings, err)
			continue
		}
		if got := []Share{c.Share("gpu"), c.Share("mig-1g.10gb")}; !cmp.Equal(got, test.shares) {
			t.Errorf("%s: %+v", name, got)
		}
		c.shares = nil
		if diff := cmp.Diff(test.config, *c, cmp.AllowUnexported(Config{})); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// What has no effect is a warning that names it.
func TestParseWarns(t *testing.T) {
	_, warnings, err := load([]byte(`
version: v1
colour: green
flags:
  migstrategy: mixed
  nvidiaDriverRoot: /run/nvidia/driver
  gdsEnabled: true
  plugin: {deviceListStrategy: [envvar, cdi-cri]}
  gfd: {oneshot: true}
resources: {gpus: [{pattern: "*A100*", name: a100}]}
sharing:
  timeSlicing:
    resources: [{name: gpu, replicas: 2, devices: 1, colour: red}, {name: mig-1g.5gb, replicas: 2, devices: ["0:1"]}]
`))
	want := []string{
		"colour", "flags.migstrategy", "flags.nvidiaDriverRoot", "flags.gdsEnabled", "flags.plugin.deviceListStrategy",
		"flags.gfd", "resources", "sharing.timeSlicing.resources[0].colour",
		"sharing.timeSlicing.resources[0].devices", "sharing.timeSlicing.resources[1].devices",
	}
	got := map[string]bool{}
	for _, w := range warnings {
		got[strings.TrimSuffix(w, " has no effect")] = true
	}
	for _, key := range want {
		if !got[key] {
			t.Errorf("no warning of %s", key)
		}
	}
	if err != nil || len(got) != len(want) {
		t.Errorf("%q, %v", warnings, err)
	}
}

// What cannot be is an error that names the entry.
func TestParseRefuses(t *testing.T) {
	sharing := func(section, entries string) string {
		return "sharing: {" + section + ": {resources: [" + entries + "]}}"
	}
	slicing := func(entries string) string { return sharing("timeSlicing", entries) }
	for _, test := range [][2]string{
		{"version: v2", `version "v2"`},
		{"- a list", "cannot unmarshal array"},
		{"version: [", "yaml"},
		{"version: v1\nversion:", `"version" already set`},
		{"flags: {migStrategy: both}", `"both"`},
		{"flags: {plugin: {passDeviceSpecs: maybe}}", "passDeviceSpecs"},
		{"#" + strings.Repeat(" ", maxFile), "1048576 bytes"},
		{slicing(""), "sharing.timeSlicing.resources: there are none"},
		{"sharing: {timeSlicing: {}}", "sharing.timeSlicing.resources: there are none"},
		{slicing("{name: gpu, replicas: 0}"), "sharing.timeSlicing.resources[0]: replicas of gpu are 0"},
		{slicing("{name: gpu, replicas: 1}"), "replicas of gpu are 1"},
		{slicing("{name: gpu}, {name: gpu2, replicas: 2}"), "[0]: replicas of gpu are 0"},
		{slicing("{name: gpu, replicas: -4}"), "replicas of gpu are -4"},
		{slicing("{name: gpu, replicas: 1025}"), "use 2 to 1024"},
		{slicing("{name: gpu, replicas: 2.5}"), "replicas"},
		{slicing("{name: gpu, replicas: '2'}"), "replicas"},
		{slicing("{replicas: 2}"), "resources[0]: name"},
		{slicing("{name: nvidia.com/GPU, replicas: 2}"), `resources[0]: name "nvidia.com/GPU"`},
		{slicing("{name: amd.com/gpu, replicas: 2}"), `resources[0]: name "amd.com/gpu"`},
		{slicing("{name: gpu, replicas: 2}, {name: nvidia.com/gpu}"), "resources[1]: gpu, advertised as gpu, overlaps"},
		{slicing("{name: a, rename: c, replicas: 2}, {name: b, rename: c}"), "[1]: b, advertised as c, overlaps"},
		{slicing("{name: mig-1g.5gb, rename: gpu, replicas: 2}"), "rename of mig-1g.5gb to \"gpu\""},
		{slicing("{name: gpu, rename: mig-1c.2g.20gb.me, replicas: 2}"), "rename of gpu"},
		{slicing("{name: gpu, rename: a/b, replicas: 2}"), "rename of gpu to \"a/b\""},
		{slicing("{name: gpu, rename: cards, replicas: 2}"), "rename of gpu to \"cards\": GPUs cannot"},
		{slicing("{name: gpu, rename: memory, replicas: 2}"), "rename of gpu to \"memory\": GPUs cannot"},
		{slicing("{name: " + strings.Repeat("a", 53) + ", replicas: 2}"), "at most 63"},
		{slicing("{name: " + strings.Repeat("a", 1<<19) + ", replicas: 2}"), "at most 63"},
		{sharing("mps", "{name: gpu, replicas: 49}"), "use 2 to 48"},
		{"flags: {migStrategy: mixed}\n" + sharing("mps", "{name: gpu, replicas: 2}"), "MPS does not share MIG slices"},
		{"sharing: {mps: {}, timeSlicing: {}}", "use one of them"},
	} {
		file, want := test[0], test[1]
		c, _, err := load([]byte(file))
		if err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > 400 {
			t.Errorf("%.90s\n%+v, %.400v, want %q", file, c, err, want)
		}
	}
}

func TestStrategy(t *testing.T) {
	for s, want := range map[Share]string{
		{Replicas: 1}: ShareNone, {Replicas: 2}: ShareTimeSlicing, {Replicas: 2, MPS: true}: ShareMPS,
	} {
		if got := s.Strategy(); got != want {
			t.Errorf("%+v: %s", s, got)
		}
	}
}

// The kinds of a file that is read differ from each other, and nothing panics.
func FuzzParse(f *testing.F) {
	f.Add([]byte(sharedGPU))
	f.Add([]byte("flags: {migStrategy: mixed}\nsharing: {mps: {resources: [{name: gpu, replicas: 2, devices: 1}]}}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, _, err := load(data)
		if err != nil {
			return
		}
		names := map[string]bool{}
		for kind, s := range c.shares {
			if names[s.Kind] || s.Replicas < 2 || s.Replicas > maxReplicas || len(domain+s.Kind) > maxName {
				t.Errorf("%s: %+v", kind, s)
			}
			names[s.Kind] = true
		}
	})
}
