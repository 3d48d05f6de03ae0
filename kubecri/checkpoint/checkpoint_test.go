package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

func sample() Checkpoint {
	return Checkpoint{
		Claims: []Claim{{Slot: "cam-8120fe-0", Spec: v1alpha1.SlotClaimSpec{NodeName: "a", Holder: "u1", Container: "main",
			Level: v1alpha1.ConfigurationLevel, Pod: &v1alpha1.PodReference{Namespace: "ns", Name: "p", UID: "u1"}}}},
		Devices: map[string]Device{"cam-8120fe": {Handler: "onvif", Device: discovery.Device{ID: "foo0", Properties: map[string]string{"URL": "rtsp://a"},
			Mounts:      []discovery.Mount{{ContainerPath: "/data", HostPath: "/srv", ReadOnly: true}},
			DeviceSpecs: []discovery.DeviceSpec{{ContainerPath: "/dev/a", HostPath: "/dev/b", Permissions: "rw"}}}}},
	}
}

func TestWriteAndLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "checkpoint")
	if _, err := Load(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	w := NewWriter(path)
	for _, want := range []bool{true, false} {
		if wrote, err := w.Write(sample()); err != nil || wrote != want {
			t.Errorf("wrote %v (%v), want %v", wrote, err, want)
		}
	}
	got, err := Load(path)
	if diff := cmp.Diff(sample(), got); err != nil || diff != "" {
		t.Errorf("(-want +got), error %v:\n%s", err, diff)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v (%v): properties may be secret", info.Mode(), err)
	}
	if wrote, err := w.Write(Checkpoint{}); err != nil || !wrote {
		t.Errorf("another content: wrote %v (%v)", wrote, err)
	}
	if entries, _ := os.ReadDir(filepath.Dir(path)); len(entries) != 1 {
		t.Errorf("left behind: %v", entries)
	}
}

// Devices are read as a kubecri wrote them that had no names for their fields but Go's.
func TestFormerNamesOfFields(t *testing.T) {
	var got Device
	err := json.Unmarshal([]byte(`{"handler": "onvif", "device": {"ID": "foo0", "Properties": {"URL": "rtsp://a"},
		"Variables": null, "BrokerVariables": null,
		"Mounts": [{"ContainerPath": "/data", "HostPath": "/srv", "ReadOnly": true}],
		"DeviceSpecs": [{"ContainerPath": "/dev/a", "HostPath": "/dev/b", "Permissions": "rw"}]}}`), &got)
	if diff := cmp.Diff(sample().Devices["cam-8120fe"], got); err != nil || diff != "" {
		t.Errorf("(-want +got), error %v:\n%s", err, diff)
	}
}

// After a write that failed, also what the file says already is written: no error means that the disk
// can be written.
func TestWriteAfterAnError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "checkpoint")
	w := NewWriter(path)
	if _, err := w.Write(sample()); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(filepath.Dir(path), ".checkpoint.tmp/in-the-way"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, c := range []Checkpoint{{}, sample(), {}} {
		if _, err := w.Write(c); err == nil {
			t.Error("no error, though nothing can be written")
		}
	}
}

// A device node of another device under the same path is found out.
func TestUnchanged(t *testing.T) {
	dir := t.TempDir()
	node, link := filepath.Join(dir, "node"), filepath.Join(dir, "link")
	touch := func(path string) {
		t.Helper()
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	swap := func(path, target string) {
		t.Helper()
		if err := errors.Join(os.RemoveAll(path), os.Symlink(target, path)); err != nil {
			t.Fatal(err)
		}
	}
	touch(node)
	touch(filepath.Join(dir, "other"))
	swap(link, node)
	spec := func(path string) discovery.Device {
		return discovery.Device{DeviceSpecs: []discovery.DeviceSpec{{HostPath: path}}}
	}
	for name, test := range map[string]struct {
		device discovery.Device
		change func()
	}{
		"a link leads elsewhere": {spec(link), func() { swap(link, filepath.Join(dir, "other")) }},
		"it is another node": {spec(node), func() {
			touch(filepath.Join(dir, "new")) // while the former is there: its inode is another
			if err := os.Rename(filepath.Join(dir, "new"), node); err != nil {
				t.Fatal(err)
			}
		}},
		"it is gone": {spec(filepath.Join(dir, "other")), func() { os.Remove(filepath.Join(dir, "other")) }},
	} {
		d, err := NewDevice("udev", test.device)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Unchanged(); err != nil {
			t.Errorf("%s: before: %v", name, err)
		}
		test.change()
		if d.Unchanged() == nil {
			t.Errorf("%s: not found out", name)
		}
	}
	d, err := NewDevice("udev", spec("/dev/null"))
	if err != nil || d.Unchanged() != nil {
		t.Fatalf("/dev/null: %v, %v", err, d.Unchanged())
	}
	d.Nodes["/dev/null"] = strings.Replace(d.Nodes["/dev/null"], d.Nodes["/dev/null"][:4], "boot", 1)
	if d.Unchanged() == nil {
		t.Error("another boot: not found out")
	}
	if d, err := NewDevice("onvif", discovery.Device{ID: "a"}); err != nil || d.Nodes != nil || d.Unchanged() != nil {
		t.Errorf("a device without nodes: %v, %v", d, err)
	}
}

// A write that fails leaves the former content.
func TestFailedWriteLeavesTheFormer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "checkpoint")
	w := NewWriter(path)
	if _, err := w.Write(sample()); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(filepath.Dir(path), ".checkpoint.tmp/in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(Checkpoint{}); err == nil {
		t.Error("no error")
	}
	if got, err := Load(path); err != nil || len(got.Claims) != 1 {
		t.Errorf("%v, %v", got, err)
	}
}

// Whatever is cut, flipped or foreign in the file is found out.
func TestCorrupt(t *testing.T) {
	content, err := Encode(sample())
	if err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string][]byte{
		"empty":            {},
		"cut":              content[:len(content)-1],
		"flipped":          bytes.Replace(content, []byte("rtsp://a"), []byte("rtsp://b"), 1),
		"another version":  bytes.Replace(content, []byte(`"version":1`), []byte(`"version":2`), 1),
		"no checksum":      []byte(`{"version":1,"data":{}}`),
		"a slot's name":    must(t, Checkpoint{Claims: []Claim{{Slot: "x"}}}),
		"not an object":    []byte(`[]`),
		"the kubelet's":    []byte(`{"data":"{}","checksum":3}`),
		"two in one":       append(content, content...),
		"data of no shape": []byte(strings.Replace(`{"version":1,"checksum":"SUM","data":[]}`, "SUM", checksum([]byte("[]")), 1)),
	} {
		if _, err := Decode(bad); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func must(t testing.TB, c Checkpoint) []byte {
	content, err := Encode(c)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// Whatever is in the file, nothing panics, and what can be decoded is what was encoded.
// What the fuzzer makes has no checksum that fits, so it is tried with one, too.
func FuzzDecode(f *testing.F) {
	data, err := json.Marshal(sample())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add(must(f, sample()))
	f.Fuzz(func(t *testing.T, content []byte) {
		_, _ = Decode(content)
		summed, err := json.Marshal(file{Version: version, Checksum: checksum(content), Data: content})
		if err != nil {
			return // not JSON
		}
		c, err := Decode(summed)
		if err != nil {
			return
		}
		back, err := Decode(must(t, c))
		if diff := cmp.Diff(c, back); err != nil || diff != "" {
			t.Fatalf("decoded, encoded and decoded again (-first +second), error %v:\n%s", err, diff)
		}
	})
}
