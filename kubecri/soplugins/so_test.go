package soplugins

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubeslot/kubeslot/plugins/load"
	"github.com/kubeslot/kubeslot/plugins/plugintest"
	"github.com/kubeslot/kubeslot/test/await"
)

// A plugin that was built and loaded as a .so file, through everything that it may
// do. Go cannot unload it, so it is loaded once.
func TestSharedObject(t *testing.T) {
	plugintest.Once(t)
	dir := t.TempDir()
	plugintest.Build(t, filepath.Join(dir, "fickle.so"), "./testdata/src/fickle")
	args := os.Args
	os.Args = append(args[:len(args):len(args)], "--cridevices="+dir)
	t.Cleanup(func() { os.Args = args })
	say := func(lines ...string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "fickle.new"), []byte(strings.Join(lines, "\n")), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "fickle.new"), filepath.Join(dir, "fickle")); err != nil {
			t.Fatal(err)
		}
	}
	say("Start error no driver")
	loaded, bad, err := load.Directory(dir, load.Devices, load.Options{})
	if err != nil || len(bad) > 0 || len(loaded) != 1 || loaded[0].Name != "fickle" {
		t.Fatal(loaded, bad, err)
	}
	p, err := New(Config{Node: "a", Loaded: loaded, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	plugin := p.list[0]
	refuses := func(parts ...string) {
		t.Helper()
		edits, err := p.Allocate(t.Context(), assigned("resource/group/fickle/1/cards"), "main")
		for _, part := range parts {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%v, %v; want an error with %q", edits, err, part)
			}
		}
	}
	step := func() *Fault {
		fault := p.step(t.Context(), plugin)
		p.note(t.Context(), plugin, fault)
		return fault
	}
	if fault := step(); fault == nil || fault.Kind != errored {
		t.Fatal(fault)
	}
	refuses("no driver")
	say("Start panic")
	if fault := step(); fault == nil || fault.Kind != panicked {
		t.Fatal(fault)
	}
	say("UpdateNodeInfo exit")
	if fault := step(); fault == nil || fault.Kind != errored || !strings.Contains(fault.Error(), "Goexit") {
		t.Fatal(fault)
	}
	say("count 3")
	if fault := step(); fault != nil {
		t.Fatal(fault)
	}
	if info, _ := p.NodeInfo(); info.KubeAlloc["example.com/fickle"] != 3 || info.Allocatable["resource/group/fickle/2/cards"] != 1 || !p.Gives("example.com/fickle") || p.Gives("example.com/x") {
		t.Errorf("%+v", info)
	}

	for _, test := range []struct{ line, err string }{
		{"Allocate error out of order", "out of order"},
		{"Allocate panic", "assignment to entry in nil map"},
		{"Allocate exit", "Goexit"},
		{"device " + dir, "not a device node"},
		{"device dev/null", "not an absolute path"},
		{"mount " + dir + "/none /data", "no such file"},
		{"mount " + dir + " data", "not an absolute path"},
		{"env AKRI_DEVICES x", "kubecri's own"},
		{"env A=B x", "variable"},
	} {
		say(test.line)
		refuses("fickle", test.err)
	}
	say("device /dev/null", "device vendor.com/fickle=1", "mount "+dir+" /data", "env A b c")
	edits, err := p.Allocate(t.Context(), assigned("resource/group/fickle/1/cards"), "main")
	if err != nil || len(edits) != 1 || variable(edits[0], "FICKLE") != "1" || variable(edits[0], "A") != "b c" ||
		edits[0].Devices[0].HostPath != "/dev/null" || edits[0].CDI[0] != "vendor.com/fickle=1" || edits[0].Mounts[0].HostPath != dir {
		t.Errorf("%+v, %v", edits, err)
	}

	release := filepath.Join(dir, "release")
	say("Allocate hang " + release)
	plugin.timeout = 200 * time.Millisecond
	refuses("did not return in time")
	plugin.timeout = time.Minute
	refuses("Allocate has not returned for")
	say("")
	if err := os.WriteFile(release, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	await.That(t, "the plugin to be called again after the call that hung", plugin.unavailable)
	if edits, err := p.Allocate(t.Context(), assigned("resource/group/fickle/0/cards"), "main"); err != nil || variable(edits[0], "FICKLE") != "0" {
		t.Errorf("%+v, %v", edits, err)
	}
}
