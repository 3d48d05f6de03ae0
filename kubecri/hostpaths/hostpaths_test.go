package hostpaths

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubeslot/kubeslot/discovery"
)

func TestCheck(t *testing.T) {
	dir := t.TempDir()
	for _, sub := range []string{"dev/snd", "dev2", "etc"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{
		"dev/by-id":      "snd",     // stays inside
		"dev/fd":         "../etc",  // leaves
		"dev/missing":    "../none", // leads to what anybody may make
		"dev/loop":       "loop",
		"run":            "dev", // another name of an allowed directory
		"etc/hidden":     dir + "/dev/snd",
		"dev/chain":      "by-id",
		"dev/chain-away": "fd",
	} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	allowed, err := Parse([]string{dir + "/dev", "echo=" + dir + "/etc", "none="})
	if err != nil {
		t.Fatal(err)
	}
	linked, err := Parse([]string{dir + "/run/"})
	if err != nil {
		t.Fatal(err)
	}
	everything, err := Parse([]string{"/"})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name    string
		handler string
		allowed *Allowed
		path    string
		wantErr string // "" for allowed
	}{
		{name: "a device", path: "/dev/snd"},
		{name: "the directory itself", path: "/dev"},
		{name: "what is not there yet", path: "/dev/bus/usb/001/007"},
		{name: "a link inside", path: "/dev/by-id"},
		{name: "links to links inside", path: "/dev/chain"},
		{name: "another name of the directory", path: "/run/snd"},
		{name: "a link from outside that leads inside", path: "/etc/hidden"},
		{name: "outside", path: "/etc", wantErr: "in none of the directories"},
		{name: "a directory whose name begins alike", path: "/dev2", wantErr: "in none of the directories"},
		{name: "the directory above", path: "", wantErr: "in none of the directories"},
		{name: "a link that leaves", path: "/dev/fd", wantErr: "leads to " + dir + "/etc"},
		{name: "below a link that leaves", path: "/dev/fd/passwd", wantErr: "leads to " + dir + "/etc/passwd"},
		{name: "links to links that leave", path: "/dev/chain-away", wantErr: "leads to"},
		{name: "a link that leads to nothing", path: "/dev/missing", wantErr: "leads to nothing"},
		{name: "below a link that leads to nothing", path: "/dev/missing/x", wantErr: "leads to nothing"},
		{name: "a loop", path: "/dev/loop", wantErr: "too many links"},
		{name: "dots", path: "/dev/../etc", wantErr: ".. in it"},
		{name: "dots that stay inside", path: "/dev/snd/../snd", wantErr: ".. in it"},
		{name: "NUL", path: "/dev/\x00", wantErr: "NUL"},
		{name: "two dots in a name", path: "/dev/a..b"},
		{name: "a handler with directories of its own", handler: "echo", path: "/etc"},
		{name: "a handler with directories of its own has no others", handler: "echo", path: "/dev", wantErr: `handler "echo"`},
		{name: "a handler that may give nothing", handler: "none", path: "/dev", wantErr: `handler "none"`},
		{name: "the allowed directory is a link", allowed: &linked, path: "/dev/snd"},
		{name: "the allowed directory is a link, outside", allowed: &linked, path: "/etc", wantErr: "in none of the directories"},
		{name: "the zero value", allowed: &Allowed{}, path: "/dev", wantErr: "in none of the directories"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.allowed == nil {
				test.allowed = &allowed
			}
			for kind, device := range map[string]discovery.Device{
				"mount":       {Mounts: []discovery.Mount{{ContainerPath: "/x", HostPath: dir + test.path, ReadOnly: true}}},
				"device node": {DeviceSpecs: []discovery.DeviceSpec{{ContainerPath: "/x", HostPath: dir + test.path}}},
			} {
				err := test.allowed.Check(test.handler, device)
				if (err != nil) != (test.wantErr != "") {
					t.Fatalf("%s: Check() = %v, want an error: %t", kind, err, test.wantErr != "")
				}
				if err != nil && (!strings.Contains(err.Error(), test.wantErr) || !strings.Contains(err.Error(), kind)) {
					t.Errorf("%s: Check() = %v, want an error with %q", kind, err, test.wantErr)
				}
			}
		})
	}
	relative := discovery.Device{Mounts: []discovery.Mount{{HostPath: "dev/snd"}}}
	if err := everything.Check("", relative); err == nil || !strings.Contains(err.Error(), "not an absolute path") {
		t.Errorf("Check() of a relative path = %v", err)
	}
	if err := everything.Check("", discovery.Device{Mounts: []discovery.Mount{{HostPath: "/etc", ReadOnly: true}}}); err != nil {
		t.Errorf("Check() of /etc = %v, though everything is allowed", err)
	}
	if err := (Allowed{}).Check("", discovery.Device{Properties: map[string]string{"A": "b"}}); err != nil {
		t.Errorf("Check() of a device without paths = %v", err)
	}
}

// A link in /proc leads elsewhere for kubecri than for the container runtime, also where all
// is allowed.
func TestLinksInProcAreNotFollowed(t *testing.T) {
	link := filepath.Join(t.TempDir(), "stdin")
	if err := os.Symlink("/proc/self/fd/0", link); err != nil {
		t.Fatal(err)
	}
	null, err := os.Open(os.DevNull) // in an allowed directory
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	allowed, err := Parse([]string{"/"})
	if err != nil {
		t.Fatal(err)
	}
	for path, through := range map[string]string{
		link:                    "/proc/self",
		"/proc/thread-self/cwd": "/proc/thread-self",
		fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), null.Fd()): fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), null.Fd()),
		"/proc/cpuinfo": "", // no link
	} {
		node := discovery.Device{DeviceSpecs: []discovery.DeviceSpec{{ContainerPath: "/x", HostPath: path}}}
		want := fmt.Sprintf("device node %q: leads through %s, which is another file for each process", path, through)
		if err := allowed.Check("", node); (err != nil) != (through != "") || err != nil && err.Error() != want {
			t.Errorf("Check() of %s = %v, want an error: %t, %s", path, err, through != "", want)
		}
	}
}

// What all handlers may give is for reading: who writes udev's rules is root. Device nodes
// are what they are for.
func TestMountsForAllAreReadOnly(t *testing.T) {
	dir := t.TempDir()
	for _, sub := range []string{"udev/rules.d", "data"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../udev", filepath.Join(dir, "data/udev")); err != nil {
		t.Fatal(err)
	}
	allowed, err := Parse([]string{dir + "/udev", "echo=" + dir})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		handler, path string
		readOnly      bool
		refused       bool
	}{
		{path: "/udev", refused: true},
		{path: "/udev/rules.d", refused: true},
		{path: "/data/udev/rules.d", refused: true}, // a link
		{path: "/udev/rules.d", readOnly: true},
		{handler: "echo", path: "/udev/rules.d"},
		{handler: "echo", path: ""},
		{handler: "echo", path: "/data"},
	} {
		mount := discovery.Mount{ContainerPath: "/x", HostPath: dir + test.path, ReadOnly: test.readOnly}
		err := allowed.Check(test.handler, discovery.Device{Mounts: []discovery.Mount{mount}})
		if (err != nil) != test.refused || err != nil && !strings.Contains(err.Error(), "want readOnly: true") {
			t.Errorf("handler %q mounts %+v: %v, want it to be refused: %t", test.handler, mount, err, test.refused)
		}
	}
	node := discovery.Device{DeviceSpecs: []discovery.DeviceSpec{{ContainerPath: "/x", HostPath: dir + "/udev/rules.d", Permissions: "rwm"}}}
	if err := allowed.Check("", node); err != nil {
		t.Errorf("Check() of a device node = %v", err)
	}
}

// What anybody may write may be another thing when a container gets it.
func TestPublicDirectories(t *testing.T) {
	dir := t.TempDir()
	for _, sub := range []string{"dev/shm/mine/deep", "dev/snd"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(dir, "dev/shm"), 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../shm/mine", filepath.Join(dir, "dev/snd/link")); err != nil {
		t.Fatal(err)
	}
	allowed, err := Parse([]string{dir + "/dev", "echo=" + dir + "/dev", "own=" + dir + "/dev", "own=" + dir + "/dev/shm"})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		handler, path string
		refused       bool
	}{
		{path: "/dev/shm"}, // itself is nobody's to replace
		{path: "/dev/snd"},
		{path: "/dev/shm/mine", refused: true},
		{path: "/dev/shm/mine/deep", refused: true},
		{path: "/dev/shm/none/deep", refused: true},
		{path: "/dev/snd/link/deep", refused: true},
		{handler: "echo", path: "/dev/shm/mine", refused: true},
		{handler: "own", path: "/dev/shm/mine"}, // it is allowed by name
	} {
		for kind, device := range map[string]discovery.Device{
			"mount":       {Mounts: []discovery.Mount{{ContainerPath: "/x", HostPath: dir + test.path, ReadOnly: true}}},
			"device node": {DeviceSpecs: []discovery.DeviceSpec{{ContainerPath: "/x", HostPath: dir + test.path}}},
		} {
			err := allowed.Check(test.handler, device)
			if (err != nil) != test.refused || err != nil && !strings.Contains(err.Error(), "/dev/shm, which anybody may write") {
				t.Errorf("handler %q, %s %s: %v, want it to be refused: %t", test.handler, kind, test.path, err, test.refused)
			}
		}
	}
}

// Where kubecri's container lacks a directory of the node, links in it cannot be followed.
func TestADirectoryThatIsNotSeenAllowsNothing(t *testing.T) {
	dir := t.TempDir()
	allowed, err := Parse([]string{dir + "/srv/"})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/srv", "/srv/models/etc"} {
		err := allowed.Check("", discovery.Device{DeviceSpecs: []discovery.DeviceSpec{{ContainerPath: "/x", HostPath: dir + path}}})
		if err == nil || !strings.Contains(err.Error(), "does not see the allowed directory "+dir+"/srv") || !strings.Contains(err.Error(), "at the same place") {
			t.Errorf("Check() of %s = %v", path, err)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for entry, want := range map[string]string{
		"dev": "absolute", "/dev/../etc": "..", "=/dev": "names no handler", "udev=dev": "absolute", "": "absolute",
	} {
		if _, err := Parse([]string{"/dev", entry}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse(%q) = %v, want an error with %q", entry, err, want)
		}
	}
	if _, err := Parse(Default); err != nil {
		t.Error(err)
	}
}

// Whatever a path is: one that is allowed leads into the allowed directory, as the kernel
// follows it.
func FuzzCheck(f *testing.F) {
	dir := f.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "dev/a/b"), 0o755); err != nil {
		f.Fatal(err)
	}
	for link, to := range map[string]string{"dev/up": "..", "dev/root": "/", "dev/a/in": "../a", "dev/gone": dir + "/etc", "out": "dev"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			f.Fatal(err)
		}
	}
	allowed, err := Parse([]string{dir + "/dev"})
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range []string{"/dev/a/b", "/dev/up/etc", "/dev/root/etc/passwd", "/dev/a/in/b", "/out/a", "//dev//a/", "/dev/./a", "/dev/gone/x", "/dev/a\x00", "/dev/..", ""} {
		f.Add(path)
	}
	f.Fuzz(func(t *testing.T, path string) {
		path = dir + path
		if allowed.Check("x", discovery.Device{Mounts: []discovery.Mount{{HostPath: path, ReadOnly: true}}}) != nil {
			return
		}
		// What is not there would be made by the runtime, so its directory counts.
		for {
			real, err := filepath.EvalSymlinks(path)
			if err == nil {
				if !strings.HasPrefix(real+"/", dir+"/dev/") {
					t.Errorf("%q is allowed and leads to %s", path, real)
				}
				return
			}
			if _, err := os.Lstat(path); err == nil {
				t.Fatalf("%q is allowed and leads to nothing", path)
			}
			path = filepath.Dir(path)
		}
	})
}

// BenchmarkCheck looks at one device node, as for each that a handler reports anew.
func BenchmarkCheck(b *testing.B) {
	allowed, err := Parse(Default)
	if err != nil {
		b.Fatal(err)
	}
	device := discovery.Device{DeviceSpecs: []discovery.DeviceSpec{{ContainerPath: "/dev/null", HostPath: "/dev/null"}}}
	for b.Loop() {
		if err := allowed.Check("udev", device); err != nil {
			b.Fatal(err)
		}
	}
}
