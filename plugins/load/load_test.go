package load

import (
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestFolder(t *testing.T) {
	dir := folder(t, map[string]string{"10-moody.so": build(t, "moody"), "readme.txt": write(t, filepath.Join(t.TempDir(), "x"), "text")})
	plugins, bad, err := Directory(dir, Schedulers, Options{})
	if err != nil || len(bad) > 0 || len(plugins) != 1 {
		t.Fatal(plugins, bad, err)
	}
	if p := plugins[0]; p.Name != "moody" || p.File != filepath.Join(dir, "10-moody.so") || !p.Value.UsingGroupScheduler() {
		t.Errorf("%+v", p)
	}
	devices, bad, err := Directory(folder(t, map[string]string{"nothing.so": build(t, "device")}), Devices, Options{})
	if err != nil || len(bad) > 0 || len(devices) != 1 || devices[0].Name != "nothing" {
		t.Fatal(devices, bad, err)
	}
}

func TestNoFolderIsNoPlugins(t *testing.T) {
	plugins, bad, err := Directory(filepath.Join(t.TempDir(), "none"), Schedulers, Options{})
	if len(plugins) > 0 || len(bad) > 0 || err != nil {
		t.Error(plugins, bad, err)
	}
	file := write(t, filepath.Join(t.TempDir(), "file"), "")
	if _, _, err := Directory(file, Schedulers, Options{}); err == nil {
		t.Error("a file in the folder's place is not told")
	}
}

// A bad file keeps all from loading, or only itself: that is the policy.
func TestPolicy(t *testing.T) {
	dir := folder(t, map[string]string{"a.so": write(t, filepath.Join(t.TempDir(), "text"), "text"), "b.so": build(t, "moody")})
	plugins, bad, err := Directory(dir, Schedulers, Options{Policy: Refuse})
	if len(plugins) != 0 || len(bad) != 1 || err == nil || err.Error() != bad[0].Error() {
		t.Errorf("refuse: %v %v %v", plugins, bad, err)
	}
	plugins, bad, err = Directory(dir, Schedulers, Options{Policy: Skip})
	if len(plugins) != 1 || len(bad) != 1 || err != nil || bad[0].File != filepath.Join(dir, "a.so") {
		t.Errorf("skip: %v %v %v", plugins, bad, err)
	}
	var p Policy
	if p.String() != "refuse" || p.Set("maybe") == nil || p.Set("skip") != nil || p != Skip {
		t.Errorf("policy %q", p)
	}
}

func TestTwoPluginsOfOneName(t *testing.T) {
	files := map[string]string{"a.so": build(t, "moody"), "b.so": build(t, "second")}
	dir := folder(t, files)
	plugins, bad, err := Directory(dir, Schedulers, Options{})
	if len(plugins) != 0 || err == nil || !strings.Contains(err.Error(), filepath.Join(dir, "a.so")) || !strings.Contains(err.Error(), filepath.Join(dir, "b.so")) {
		t.Errorf("%v %v %v", plugins, bad, err)
	}
	// The file under another name is no other plugin.
	files["b.so"] = write(t, filepath.Join(built.dir, "copy.so"), read(t, build(t, "moody")))
	_, bad, err = Directory(folder(t, files), Schedulers, Options{})
	if err == nil || len(bad) != 1 || bad[0].Findings[0].Reason != Duplicate {
		t.Errorf("%v %v", bad, err)
	}
}

// initialized is set when this process has opened the plugin whose init panics.
var initialized atomic.Bool

// What a plugin's own code does when it begins ends neither the process nor the
// wait for it.
func TestFailingFactory(t *testing.T) {
	dir := folder(t, map[string]string{"moody.so": build(t, "moody")})
	for mood, want := range map[string]string{
		"panic":    "panic: not today",
		"error":    "CreateDeviceSchedulerPlugin: no license",
		"nil":      "neither a plugin nor an error",
		"nameless": "GetName returned no name",
		"hang":     "did not return in time: 100ms",
	} {
		t.Run(mood, func(t *testing.T) {
			t.Setenv("MOOD", mood)
			timeout := time.Duration(0)
			if mood == "hang" {
				timeout = 100 * time.Millisecond
			}
			plugins, bad, err := Directory(dir, Schedulers, Options{Timeout: timeout})
			if len(plugins) != 0 || len(bad) != 1 || bad[0].Findings[0].Reason != Failed || !strings.Contains(err.Error(), want) {
				t.Errorf("%v %v", plugins, err)
			}
		})
	}
	t.Run("init", func(t *testing.T) {
		if initialized.Swap(true) {
			t.Skip("Go initializes a plugin once in a process, which the run before has done")
		}
		_, _, err := Directory(folder(t, map[string]string{"p.so": build(t, "initpanic")}), Schedulers, Options{})
		if err == nil || !strings.Contains(err.Error(), "panic: no such bus") {
			t.Error(err)
		}
	})
}

func TestWrongFactory(t *testing.T) {
	for name, want := range map[string]string{
		"wrongtype": "has CreateDeviceSchedulerPlugin as a func() string; it must be a func() (devicescheduler.DeviceScheduler, error)",
		"nofactory": "has no function CreateDeviceSchedulerPlugin in its package main. ",
		"device":    "it has CreateDevicePlugin, so it belongs into the other binary's directory",
	} {
		_, bad, err := Directory(folder(t, map[string]string{"p.so": build(t, name)}), Schedulers, Options{})
		if err == nil || bad[0].Findings[0].Reason != WrongFactory || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
