package load

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
)

// findings checks the file as a scheduler plugin of this very binary.
func findings(t *testing.T, file string) []Finding {
	t.Helper()
	h, err := self()
	if err != nil {
		t.Fatal(err)
	}
	_, _, found := h.check(file, Schedulers.Factory)
	return found
}

// expect wants the one finding.
func expect(t *testing.T, file string, reason Reason, text string) {
	t.Helper()
	found := findings(t, file)
	if len(found) != 1 || found[0].Reason != reason || !strings.Contains(found[0].Text, text) {
		t.Errorf("%s: %v, want %s %q", filepath.Base(file), found, reason, text)
	}
}

// None of these may reach plugin.Open: several would end the process there.
func TestNotAPlugin(t *testing.T) {
	needGCC(t)
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	expect(t, in("none.so"), Unreadable, "no such file")
	expect(t, write(t, in("empty.so"), ""), NotAPlugin, "is empty")
	expect(t, write(t, in("text.so"), "#!/bin/sh\nexit 0\n"), NotAPlugin, "is not a shared object")
	expect(t, write(t, in("short.so"), "\x7fELF"), NotAPlugin, "cut short or damaged")
	if err := os.Mkdir(in("folder.so"), 0o700); err != nil {
		t.Fatal(err)
	}
	expect(t, in("folder.so"), Unreadable, "a directory")
	expect(t, "/dev/null", Unreadable, "a device")

	c := write(t, in("library.c"), "int CreateDeviceSchedulerPlugin(void) { return 0; }\n")
	for _, args := range [][]string{{"-shared", "-fPIC", "-o", in("c.so"), c}, {"-c", "-o", in("object.so"), c}} {
		if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
			t.Fatalf("gcc: %v\n%s", err, out)
		}
	}
	expect(t, in("c.so"), NotAPlugin, "is it a C library?")
	expect(t, in("object.so"), NotAPlugin, "is no shared object but of type ET_REL")
	if testing.Short() {
		return // C libraries of Go need the standard library built once more
	}
	goBuild(t, in("cshared.so"), "./testdata/src/nofactory", "-buildmode=c-shared")
	expect(t, in("cshared.so"), NotAPlugin, "-buildmode=c-shared, not with -buildmode=plugin")
}

// A plugin that was copied in part is found out at whatever place it ends.
func TestTruncated(t *testing.T) {
	whole := read(t, build(t, "moody"))
	file := filepath.Join(t.TempDir(), "p.so")
	for i := 1; i < 40; i++ {
		write(t, file, whole[:len(whole)*i/40])
		if found := findings(t, file); len(found) == 0 || found[0].Reason != NotAPlugin {
			t.Errorf("%d/40 of a plugin: %v", i, found)
		}
	}
	write(t, file, whole[:len(whole)-1])
	expect(t, file, NotAPlugin, "")
	if found := findings(t, write(t, file, whole)); len(found) > 0 {
		t.Errorf("the whole plugin: %v", found)
	}
}

// Damage to any byte of the ELF header never gets past as a panic.
func TestDamagedHeader(t *testing.T) {
	whole := []byte(read(t, build(t, "moody")))
	file := filepath.Join(t.TempDir(), "p.so")
	for i := range 64 {
		for _, v := range []byte{0, 0xff} {
			damaged := bytes.Clone(whole[:1<<16])
			damaged[i] = v
			write(t, file, string(damaged))
			if len(findings(t, file)) == 0 {
				t.Errorf("byte %d as %#x: nothing found", i, v)
			}
		}
	}
}

func TestTrust(t *testing.T) {
	good := read(t, build(t, "moody"))
	dir := t.TempDir()
	file := write(t, filepath.Join(dir, "p.so"), good)
	chmod := func(path string, mode os.FileMode) {
		t.Helper()
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	chmod(dir, 0o755)
	for _, mode := range []os.FileMode{0o602, 0o620} {
		chmod(file, mode)
		expect(t, file, Untrusted, "chmod go-w "+file)
	}
	chmod(file, 0o444)
	chmod(dir, 0o777)
	expect(t, file, Untrusted, "chmod go-w "+dir)
	chmod(dir, 0o755)

	// A link is as good as its file, where both are.
	links := t.TempDir()
	link := filepath.Join(links, "link.so")
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	if found := findings(t, link); len(found) > 0 {
		t.Error(found)
	}
	chmod(dir, 0o777)
	expect(t, link, Untrusted, dir)
	chmod(dir, 0o755)
	chmod(links, 0o777)
	expect(t, link, Untrusted, links)

	if os.Geteuid() != 0 {
		t.Skip("not root: cannot give a file away")
	}
	if err := os.Chown(file, 12345, 0); err != nil {
		t.Fatal(err)
	}
	expect(t, file, Untrusted, "belongs to user 12345")
}

// Every package that differs is named, and no other.
func TestWrongPackages(t *testing.T) {
	source := read(t, "../../types/resources.go") + "\n// New is not in this binary.\nfunc New() ResourceList { return nil }\n"
	file := build(t, "moody", overlay(t, "types/resources.go", source))
	found := findings(t, file)
	if len(found) != 1 || found[0].Reason != WrongPackages {
		t.Fatal(found)
	}
	// The plugin's other packages are not in this binary.
	const want = "2 packages are not those of this binary: github.com/kubeslot/kubeslot/types, github.com/kubeslot/kubeslot/types/devicescheduler"
	if found[0].Text != want {
		t.Errorf("%s\nwant %s", found[0].Text, want)
	}
}

// A package that only an earlier plugin brought has to match too.
func TestPluginsMatchEachOther(t *testing.T) {
	h, err := self()
	if err != nil {
		t.Fatal(err)
	}
	_, hashes, _ := h.check(build(t, "moody"), Schedulers.Factory)
	const pkg = "github.com/kubeslot/kubeslot/types/resource"
	empty := &host{info: h.info}
	other := maps.Clone(hashes)
	other[pkg] = "another"
	_, _, found := empty.with("/first.so", other).check(build(t, "moody"), Schedulers.Factory)
	if len(found) != 1 || !strings.Contains(found[0].Text, "1 packages are not those of plugin /first.so: "+pkg) {
		t.Error(found)
	}
}

func TestWrongBuild(t *testing.T) {
	h, err := self()
	if err != nil {
		t.Fatal(err)
	}
	info := *h.info
	info.GoVersion = "go1.2"
	info.Settings = slices.DeleteFunc(slices.Clone(info.Settings), func(s debug.BuildSetting) bool { return s.Key == "-trimpath" || s.Key == "-race" })
	was := setting(h.info, "-race")
	if was == "" {
		info.Settings = append(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
	}
	_, _, found := (&host{info: &info, packages: h.packages}).check(build(t, "moody"), Schedulers.Factory)
	text := (&FileError{"p.so", found}).Error()
	for _, want := range []string{"this binary with go1.2", "-race", "make plugin-builder PLUGIN="} {
		if !strings.Contains(text, want) {
			t.Errorf("%s\nlacks %q", text, want)
		}
	}
}

// The command says the same as the start, and what follows.
func TestCommand(t *testing.T) {
	text := write(t, filepath.Join(t.TempDir(), "text.so"), "text")
	run := func(args ...string) (string, int, error) {
		code := ExitOK
		var out bytes.Buffer
		cmd := NewPluginCommand(Schedulers, &code)
		cmd.SetArgs(append([]string{"check"}, args...))
		cmd.SetOut(&out)
		cmd.SetErr(&out)
		err := cmd.Execute()
		return out.String(), code, err
	}
	good := build(t, "moody")
	if out, code, err := run(good); code != ExitOK || err != nil || !strings.Contains(out, "OK    "+good) {
		t.Errorf("%d %v\n%s", code, err, out)
	}
	out, code, err := run(good, text, filepath.Dir(text))
	if code != ExitBad || err != nil {
		t.Errorf("%d %v\n%s", code, err, out)
	}
	for _, want := range []string{"OK    " + good, "FAIL  " + text + "\n      not-a-plugin: it is not a shared object",
		"it would start without 2 of 3", Rebuild} {
		if !strings.Contains(out, want) {
			t.Errorf("%s\nlacks %q", out, want)
		}
	}
	for _, args := range [][]string{nil, {t.TempDir()}} {
		if out, _, err := run(args...); err == nil {
			t.Errorf("check %v: no error\n%s", args, out)
		}
	}
}

// Whoever could replace a directory on the way to a plugin, or a link, could replace the
// plugin.
func TestDirectoriesOnTheWayToAPlugin(t *testing.T) {
	root := t.TempDir()
	directory := func(parts ...string) string {
		path := filepath.Join(append([]string{root}, parts...)...)
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	deep, links := directory("a", "b", "c"), directory("links")
	file, link, through := filepath.Join(deep, "p.so"), filepath.Join(links, "l"), filepath.Join(root, "there")
	for _, err := range []error{os.WriteFile(file, []byte("x"), 0o600), os.Symlink("../a/b", link), os.Symlink("links/l", through), os.Symlink("loop", filepath.Join(root, "loop"))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(through, "c", "p.so") // there → links/l → a/b
	if real, findings := checkTrust(path); real != file || len(findings) > 0 {
		t.Fatalf("checkTrust(%s) = %s, %v", path, real, findings)
	}
	for _, open := range []string{root, links, filepath.Join(root, "a"), filepath.Join(root, "a", "b"), deep} {
		for mode, want := range map[os.FileMode]string{0o777: "is in " + open + ", which can be written by others", 0o775: "is in " + open, 0o777 | os.ModeSticky: ""} {
			if err := os.Chmod(open, mode); err != nil {
				t.Fatal(err)
			}
			_, findings := checkTrust(path)
			if want == "" && len(findings) > 0 || want != "" && (len(findings) != 1 || findings[0].Reason != Untrusted || !strings.HasPrefix(findings[0].Text, want)) {
				t.Errorf("%s with mode %v: findings %v, want %q", open, mode, findings, want)
			}
		}
		if err := os.Chmod(open, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, bad := range []string{filepath.Join(root, "loop", "p.so"), filepath.Join(root, "nowhere", "p.so")} {
		if real, findings := checkTrust(bad); real != "" || len(findings) != 1 || findings[0].Reason != Unreadable {
			t.Errorf("checkTrust(%s) = %q, %v", bad, real, findings)
		}
	}
}
