package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// environment is one with the variables, name=value.
func environment(t *testing.T, variables ...string) (Environment, []string, error) {
	t.Helper()
	values := map[string]string{}
	for _, v := range variables {
		name, value, _ := strings.Cut(v, "=")
		values[name] = value
	}
	return FromEnvironment(func(name string) string { return values[name] })
}

// directory has a file for each strategy, as a ConfigMap's volume has it.
func directory(t *testing.T, strategies ...string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "..data"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, s := range strategies {
		name, strategy, _ := strings.Cut(s, "=")
		text := "flags: {migStrategy: " + strategy + ", mpsRoot: /" + name + "}\ncolour: green\n"
		if err := os.WriteFile(filepath.Join(dir, "..data", name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// The environment overrides the file.
func TestEnvironmentOverrides(t *testing.T) {
	dir := directory(t, "one=single")
	file := filepath.Join(dir, "one")
	for name, test := range map[string]struct {
		variables []string
		want      Config
	}{
		"nothing": {nil, Config{MIGStrategy: MIGNone, MPSRoot: "/run/nvidia/mps"}},
		"file":    {[]string{"CONFIG_FILE=" + file}, Config{MIGStrategy: MIGSingle, MPSRoot: "/one"}},
		"overrides": {[]string{"CONFIG_FILE=" + file, "MIG_STRATEGY=mixed", "PASS_DEVICE_SPECS=true", "MPS_ROOT=/mine"},
			Config{MIGStrategy: MIGMixed, PassDeviceSpecs: true, MPSRoot: "/mine"}},
	} {
		e, warnings, err := environment(t, test.variables...)
		if err != nil || len(warnings) > 0 {
			t.Fatalf("%s: %q, %v", name, warnings, err)
		}
		c, _, err := e.Load("")
		if err != nil || !cmp.Equal(*c, test.want, cmp.AllowUnexported(Config{})) {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
	}
}

func TestEnvironmentRefuses(t *testing.T) {
	for _, v := range []string{"MIG_STRATEGY=both", "PASS_DEVICE_SPECS=maybe", "GPU_LABELS=amd"} {
		if _, _, err := environment(t, v); err == nil || !strings.Contains(err.Error(), v[strings.Index(v, "=")+1:]) {
			t.Errorf("%s: %v", v, err)
		}
	}
	// What the file has and what the environment has cannot be together.
	file := filepath.Join(t.TempDir(), "mps")
	if err := os.WriteFile(file, []byte("sharing: {mps: {resources: [{name: gpu, replicas: 2}]}}"), 0o600); err != nil {
		t.Fatal(err)
	}
	e, _, err := environment(t, "CONFIG_FILE="+file, "MIG_STRATEGY=single")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := e.Load(""); err == nil || !strings.Contains(err.Error(), file) {
		t.Error(err)
	}
}

// A Node's label chooses the file in a directory.
func TestLoadByLabel(t *testing.T) {
	for name, test := range map[string]struct {
		files         []string
		label, byName string
		want, err     string // the strategy, or part of the error
	}{
		"label":              {[]string{"default=none", "a100=mixed"}, "a100", "", MIGMixed, ""},
		"default":            {[]string{"default=single", "a100=mixed"}, "", "", MIGSingle, ""},
		"the only one":       {[]string{"a100=mixed"}, "", "", MIGMixed, ""},
		"DEFAULT_CONFIG":     {[]string{"default=single", "a100=mixed"}, "", "a100", MIGMixed, ""},
		"no such file":       {[]string{"default=single", "a100=mixed"}, "h100", "", "", `no file "h100"`},
		"not a file's name":  {[]string{"default=single"}, "../x", "", "", `no file "../x"`},
		"not a ConfigMap's":  {[]string{"default=single"}, "..data", "", "", `no file "..data"`},
		"none for this Node": {[]string{"h100=single", "a100=mixed"}, "", "", "", Label},
		"empty":              {nil, "", "", "", "0 files"},
		"no such default":    {[]string{"a100=mixed"}, "", "h100", "", "h100"},
		"broken":             {[]string{"default=single", "a100=both"}, "a100", "", "", `a100: MIG strategy "both"`},
	} {
		dir := directory(t, test.files...)
		e, _, err := environment(t, "CONFIG_FILE="+dir, "DEFAULT_CONFIG="+test.byName)
		if err != nil {
			t.Fatal(err)
		}
		c, warnings, err := e.Load(test.label)
		switch {
		case test.err != "":
			if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("%s: %v", name, err)
			}
		case err != nil || c.MIGStrategy != test.want:
			t.Errorf("%s: %+v, %v", name, c, err)
		case len(warnings) != 1 || !strings.HasPrefix(warnings[0], dir) || !strings.Contains(warnings[0], "colour"):
			t.Errorf("%s: warnings %q", name, warnings)
		}
	}
	e, _, _ := environment(t, "CONFIG_FILE=/none/such")
	if _, _, err := e.Load(""); err == nil || !strings.Contains(err.Error(), "/none/such") {
		t.Error(err)
	}
}

// XIDs are ignored as NVIDIA's plugin ignores them.
func TestHealth(t *testing.T) {
	const disable, enable = "DP_DISABLE_HEALTHCHECKS", "DP_ENABLE_HEALTHCHECKS"
	type xids = []uint64
	type vars = []string
	for name, test := range map[string]struct {
		variables         vars
		ignores, sickness xids
		off               bool
		warnings          int
	}{
		"default":         {nil, xids{13, 31, 43, 45, 68, 109}, xids{0, 48, 79}, false, 0},
		"also one":        {vars{disable + "=48, 63"}, xids{13, 48, 63}, xids{79}, false, 0},
		"all":             {vars{disable + "=all"}, xids{13, 48, 79}, nil, true, 0},
		"xids":            {vars{disable + "=XIDs"}, xids{48}, nil, true, 0},
		"all but":         {vars{disable + "=all", enable + "=79,13"}, xids{48}, xids{79, 13}, true, 0},
		"enable one":      {vars{enable + "=109"}, xids{13}, xids{109, 79}, false, 0},
		"enable wins":     {vars{disable + "=79", enable + "=79"}, nil, xids{79}, false, 0},
		"enable all wins": {vars{disable + "=all", enable + "=all"}, xids{13}, xids{79}, false, 0},
		"no XID":          {vars{disable + "=79,ECC,-1,,"}, xids{79}, nil, false, 2},
	} {
		e, warnings, err := environment(t, test.variables...)
		if err != nil || len(warnings) != test.warnings || e.Health.Off != test.off {
			t.Errorf("%s: %+v, %q, %v", name, e.Health, warnings, err)
		}
		for _, xid := range test.ignores {
			if !e.Health.Ignores(xid) {
				t.Errorf("%s: XID %d is not ignored", name, xid)
			}
		}
		for _, xid := range test.sickness {
			if e.Health.Ignores(xid) {
				t.Errorf("%s: XID %d is ignored", name, xid)
			}
		}
	}
}
