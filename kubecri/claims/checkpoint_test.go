package claims

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/kubecri/checkpoint"
	"github.com/kubeslot/kubeslot/kubecri/crilist"
	"github.com/kubeslot/kubeslot/test/await"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// awaitCheckpoint waits until the file has claims of these slots, in order.
func awaitCheckpoint(t *testing.T, path string, slots ...string) {
	t.Helper()
	var seen []string
	await.That(t, "the checkpoint to have "+strings.Join(slots, " "), func() bool {
		c, err := checkpoint.Load(path)
		if err != nil {
			return false
		}
		seen = nil
		for _, claim := range c.Claims {
			seen = append(seen, claim.Slot)
		}
		return strings.Join(seen, " ") == strings.Join(slots, " ")
	})
}

// A process that starts while the API server is away creates containers again whose
// pods have the claims, with their devices, and no others.
func TestStartWithoutTheAPIServer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "checkpoint.json")
	camera := &discovery.Device{ID: "a", Properties: map[string]string{"URL": "rtsp://a"}}
	a, r := newAPI(t, 3, map[string]string{"cam-b2-0": "CL u9 " + there}), &fakeRuntime{}
	first := start(t, a, r, setup{checkpoint: path, device: camera})
	first.mustCreate(t, "c1", "u1", "cam", "cam-a1-0")
	first.mustCreate(t, "c2", "u2", "cam", "cam-a1-1")
	awaitCheckpoint(t, path, "cam-a1-0", "cam-a1-1")
	first.remove("c2")
	awaitCheckpoint(t, path, "cam-a1-0")
	first.kill()

	writes := a.writes()
	again := start(t, a, r, setup{checkpoint: path, unread: true})
	device, ok := again.CheckpointedDevice(t.Context(), "cam-a1")
	if !ok || device.Handler != "" || device.Device.Properties["URL"] != "rtsp://a" {
		t.Errorf("the device: %v, %v", device, ok)
	}
	again.mustCreate(t, "c3", "u1", "cam", "cam-a1-0")
	for why, r := range map[string]Request{
		"another pod":           request(t, "u2", "cam", "cam-a1-0"),
		"a slot not claimed":    request(t, "u1", "cam", "cam-a1-0", "cam", "cam-a1-2"),
		"a claim that was left": request(t, "u2", "cam", "cam-a1-1"),
		"another level":         request(t, "u1", "cam-a1", "cam-a1-0"),
		"another node's":        request(t, "u9", "cam", "cam-b2-0"),
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		if _, err := again.Take(ctx, r); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", why, err)
		}
		cancel()
	}
	if got := a.writes(); got != writes {
		t.Errorf("%d writes to an API server that is away", got-writes)
	}
	awaitCheckpoint(t, path, "cam-a1-0") // as it was
	again.kill()

	// The API server is back: what it says counts, and a device that is not seen stays.
	last := start(t, a, r, setup{checkpoint: path})
	if _, ok := last.CheckpointedDevice(t.Context(), "cam-a1"); ok {
		t.Error("a device from the checkpoint, though the API server has been read")
	}
	last.remove("c1")
	last.remove("c3")
	last.want(t, "cam-a1-0", "")
	awaitCheckpoint(t, path)
}

// The checkpoint does not have a claim any more when it is deleted: a process that starts then, and does not
// reach the API server, would take it for the node's. It is not written again for each try.
func TestCheckpointForgetsAClaimBeforeItsDeletion(t *testing.T) {
	path := filepath.Join(t.TempDir(), "checkpoint.json")
	a := newAPI(t, 1, nil)
	f := start(t, a, &fakeRuntime{}, setup{checkpoint: path})
	f.mustCreate(t, "c1", "u1", "cam", "cam-a1-0")
	awaitCheckpoint(t, path, "cam-a1-0")
	tries := make(chan os.FileInfo, 100)
	a.set(func(verb string, do func() error) error {
		if c, err := checkpoint.Load(path); err != nil || len(c.Claims) > 0 {
			t.Errorf("the checkpoint has %v (%v) at the deletion", c.Claims, err)
		}
		info, err := os.Stat(path)
		if tries <- info; err != nil || len(tries) < 3 {
			return apierrors.NewTooManyRequests("later", 1)
		}
		return do()
	})
	f.remove("c1")
	f.want(t, "cam-a1-0", "")
	for first := <-tries; len(tries) > 0; {
		if again := <-tries; !os.SameFile(first, again) {
			t.Error("the checkpoint was written again")
		}
	}
}

// What a container had goes from the checkpoint at once: to write it for each slot would keep the last one for long.
func TestCheckpointForgetsAllSlotsOfAContainerAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "checkpoint.json")
	a := newAPI(t, 50, nil)
	f := start(t, a, &fakeRuntime{}, setup{checkpoint: path})
	var all, names []string
	for i := range 50 {
		names = append(names, fmt.Sprintf("cam-a1-%d", i))
		all = append(all, "cam", names[i])
	}
	slices.Sort(names)
	f.mustCreate(t, "c1", "u1", all...)
	awaitCheckpoint(t, path, names...)
	written := make(chan os.FileInfo, len(names))
	a.set(func(verb string, do func() error) error {
		if info, err := os.Stat(path); err == nil && verb == "delete" {
			written <- info
		}
		return do()
	})
	f.remove("c1")
	awaitCheckpoint(t, path)
	await.That(t, "all claims to be deleted", func() bool { return len(written) == len(names) })
	for first := <-written; len(written) > 0; {
		if again := <-written; !os.SameFile(first, again) {
			t.Fatal("the checkpoint was written again between two deletions")
		}
	}
}

// A claim whose deletion was refused is held again: the checkpoint has it again, or nothing could start with it
// after a restart while the API server is away.
func TestCheckpointHasAClaimThatIsHeldAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "checkpoint.json")
	a := newAPI(t, 1, nil)
	f := start(t, a, &fakeRuntime{}, setup{checkpoint: path, grace: time.Hour})
	name := slot.Name{Instance: "cam-a1", Index: 0}
	spec := v1alpha1.SlotClaimSpec{Level: v1alpha1.ConfigurationLevel, Holder: "u1",
		Pod: &v1alpha1.PodReference{Namespace: "default", Name: "p", UID: "u1"}}
	if wrote, other, err := f.HoldFor(t.Context(), name, spec); !wrote || other != nil || err != nil {
		t.Fatalf("held: %v, %v, %v", wrote, other, err)
	}
	a.set(func(string, func() error) error { return apierrors.NewTooManyRequests("later", 1) })
	if err := f.GiveBack(t.Context(), name); err == nil {
		t.Fatal("a deletion that is refused is no error")
	}
	awaitCheckpoint(t, path)
	if wrote, other, err := f.HoldFor(t.Context(), name, spec); wrote || other != nil || err != nil {
		t.Fatalf("held again: %v, %v, %v", wrote, other, err)
	}
	awaitCheckpoint(t, path, name.String())
}

// The checkpoint also has a claim again that a pod holds, whose sandbox is made anew while the API server refuses
// what is written.
func TestCheckpointHasAClaimThatAPodHoldsAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "checkpoint.json")
	a := newAPI(t, 1, nil)
	f := start(t, a, &fakeRuntime{}, setup{checkpoint: path})
	f.mustCreate(t, "c1", "u1", "cam", "cam-a1-0")
	awaitCheckpoint(t, path, "cam-a1-0")
	a.set(func(string, func() error) error { return apierrors.NewTooManyRequests("later", 1) })
	f.remove("c1")
	awaitCheckpoint(t, path)
	f.mustCreate(t, "c2", "u1", "cam", "cam-a1-0")
	awaitCheckpoint(t, path, "cam-a1-0")
}

// A checkpoint that cannot be read is as none, and is written anew.
func TestCorruptCheckpoint(t *testing.T) {
	path := filepath.Join(t.TempDir(), "checkpoint.json")
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	a, r := newAPI(t, 3, nil), &fakeRuntime{}
	without := start(t, a, r, setup{checkpoint: path, unread: true})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := without.Take(ctx, request(t, "u1", "cam", "cam-a1-0")); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	without.kill()
	f := start(t, a, r, setup{checkpoint: path})
	f.mustCreate(t, "c1", "u1", "cam", "cam-a1-0")
	awaitCheckpoint(t, path, "cam-a1-0")
}

// A checkpoint that cannot be written is tried again until it can, and why is told meanwhile.
func TestCheckpointOnAFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=12k"); err != nil {
		t.Skipf("needs root to mount a small file system: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	path, filler := filepath.Join(dir, "checkpoint.json"), filepath.Join(dir, "filler")
	if err := os.WriteFile(filler, make([]byte, 12<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	clock := testingclock.NewFakeClock(time.Now())
	a, r := newAPI(t, 3, nil), &fakeRuntime{}
	f := start(t, a, r, setup{checkpoint: path, clock: clock})
	f.mustCreate(t, "c1", "u1", "cam", "cam-a1-0")
	await.That(t, "an error", func() bool { return errors.Is(f.CheckpointError(), syscall.ENOSPC) })
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	await.That(t, "no error", func() bool { // without any change of the claims
		clock.Step(crilist.MaxRetry)
		return f.CheckpointError() == nil
	})
	awaitCheckpoint(t, path, "cam-a1-0")
}

// A device node that is another by now is not given to a container unseen.
func TestCheckpointedDeviceOfAnotherNode(t *testing.T) {
	dir := t.TempDir()
	path, node := filepath.Join(dir, "checkpoint.json"), filepath.Join(dir, "video0")
	touch := func(path string) {
		t.Helper()
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	touch(node)
	a, r := newAPI(t, 3, nil), &fakeRuntime{}
	f := start(t, a, r, setup{checkpoint: path, device: &discovery.Device{ID: "a", DeviceSpecs: []discovery.DeviceSpec{{HostPath: node}}}})
	f.mustCreate(t, "c1", "u1", "cam", "cam-a1-0")
	awaitCheckpoint(t, path, "cam-a1-0")
	f.kill()
	again := start(t, a, r, setup{checkpoint: path, unread: true})
	if _, ok := again.CheckpointedDevice(t.Context(), "cam-a1"); !ok {
		t.Fatal("no device")
	}
	touch(node + ".new")
	if err := os.Rename(node+".new", node); err != nil {
		t.Fatal(err)
	}
	if _, ok := again.CheckpointedDevice(t.Context(), "cam-a1"); ok {
		t.Error("the device under the same path, which is another")
	}
}
