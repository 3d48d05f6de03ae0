package dra

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/test/await"
)

// at is a camera with a device node, beside the other camera, which has none.
func at(path, url string) map[string]discovery.Device {
	both := bothCameras()
	both[camera] = discovery.Device{ID: "a", Properties: map[string]string{"URL": url},
		DeviceSpecs: []discovery.DeviceSpec{{HostPath: path, ContainerPath: "/dev/cam", Permissions: "rw"}}}
	return both
}

// plug has the path lead to the device node.
func plug(t *testing.T, node, path string) {
	t.Helper()
	_ = os.Remove(path)
	if err := os.Symlink(node, path); err != nil {
		t.Fatal(err)
	}
}

// says reports whether the CDI spec has all parts, and none of those that begin with "!".
func (r *rig) says(parts ...string) func() bool {
	return func() bool {
		spec := r.spec("u1")
		for _, part := range parts {
			without, not := strings.CutPrefix(part, "!")
			if strings.Contains(spec, without) == not {
				return false
			}
		}
		return true
	}
}

// The spec of a ResourceClaim follows its devices: a container gets nothing of one that is gone, though another has
// its path, and of one that is back what it is now. The claim stays prepared.
func TestSpecFollowsDevices(t *testing.T) {
	c := claim("u1", "one "+camera+" 1", "two "+other+" 1")
	r := start(t, newAPI(configuration(3), c), here, shortDir(t))
	path := filepath.Join(r.dir, "video0")
	plug(t, "/dev/null", path)
	r.devices.set(at(path, "rtsp://a"))
	if err := r.ask(t, c); err != nil {
		t.Fatal(err)
	}
	before := r.spec("u1")
	defer r.run(t)()

	gone := bothCameras()
	delete(gone, camera)
	r.devices.set(gone)
	await.That(t, "nothing of the device that is gone", r.says(`!"u1-one"`, "!/dev/null", `"u1-two"`, camera))
	plug(t, "/dev/zero", path)
	r.devices.set(nil)
	await.That(t, "nothing of either", r.says(`!"u1-one"`, `!"u1-two"`, "!/dev/zero", camera, other))
	r.devices.set(at(path, "rtsp://new"))
	await.That(t, "the device as it is now", r.says(`"u1-one"`, `"u1-two"`, "/dev/zero", "rtsp://new", "!/dev/null"))
	plug(t, "/dev/null", path)
	r.devices.set(at(path, "rtsp://a"))
	await.That(t, "the spec as it was", r.says("/dev/null"))
	nodes := func(spec string) string { return spec[strings.Index(spec, `"devices"`):] }
	if nodes(r.spec("u1")) != nodes(before) {
		t.Errorf("was\n%s\nand is\n%s", before, r.spec("u1"))
	}
}

// A path that is gone, of a device that is seen still, is an error, and no container is created with the device.
func TestSpecThatCannotBeWritten(t *testing.T) {
	r := start(t, newAPI(configuration(3)), here, t.TempDir())
	if err := r.ask(t, claim("u1", "one "+camera+" 1")); err != nil {
		t.Fatal(err)
	}
	r.devices.set(at(filepath.Join(r.dir, "gone"), "rtsp://a"))
	if err := r.describeAgain(t.Context()); err == nil || !r.says(`!"u1-one"`)() {
		t.Errorf("%v; its spec is\n%s", err, r.spec("u1"))
	}
}

// A device that the node is not known to see yet is as it was, unless its path leads to another since: after a
// reboot, say.
func TestSpecOfADeviceThatIsNotKnownYet(t *testing.T) {
	a := newAPI(configuration(3))
	r := start(t, a, here, t.TempDir())
	path := filepath.Join(r.dir, "video0")
	plug(t, "/dev/null", path)
	r.devices.set(at(path, "rtsp://a"))
	if err := r.ask(t, claim("u1", "one "+camera+" 1")); err != nil {
		t.Fatal(err)
	}
	before := r.spec("u1")
	r.kill()
	r = start(t, a, here, r.dir)
	r.devices.seen, r.devices.unknown = nil, true
	again := func() {
		t.Helper()
		if err := r.describeAgain(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if again(); r.spec("u1") != before {
		t.Errorf("the device is the one that it was, and its spec is\n%s", r.spec("u1"))
	}
	plug(t, "/dev/zero", path)
	if again(); !r.says(`!"u1-one"`, camera)() {
		t.Errorf("the path leads to another device, and the spec is\n%s", r.spec("u1"))
	}
	r.devices.set(at(path, "rtsp://a"))
	if again(); !r.says(`"u1-one"`, "/dev/zero")() {
		t.Errorf("the device is known, and the spec is\n%s", r.spec("u1"))
	}
}
