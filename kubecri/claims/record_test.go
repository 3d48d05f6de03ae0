package claims

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// Each pod whose containers use the device is told once, and nobody else is: also when the
// news is older than what is known of the containers.
func TestRecordEvents(t *testing.T) {
	r := &fakeRuntime{down: true}
	r.add(t, "c1", "u1", "cam", "cam-a1-0", "cam", "cam-b2-0")
	r.add(t, "c2", "u1", "cam", "cam-a1-1") // of the same pod
	r.add(t, "c3", "u2", "cam-a1", "cam-a1-2")
	r.add(t, "c4", "u3", "cam", "cam-b2-1")
	f := start(t, newAPI(t, 4, nil), r, setup{})
	f.RecordEvents("cam-a1", "DeviceChanged", "it is another")
	f.RecordEvents("mic-a1", "DeviceGone", "nobody hears this")
	for range 2 * maxEarly {
		f.RecordEvents("mic-a1", "DeviceGone", "nobody hears this either")
	}
	f.mu.Lock()
	if len(f.early) != maxEarly {
		t.Errorf("%d Events wait, want %d", len(f.early), maxEarly)
	}
	f.mu.Unlock()
	select {
	case event := <-f.events.Events:
		t.Fatalf("%q, though it is not known who uses what", event)
	default:
	}
	r.change(func() { r.down = false })
	f.Resync()
	want := "Warning DeviceChanged it is another"
	for range 2 {
		f.wantEvent(t, want)
	}
	f.RecordEvents("cam-b2", "DeviceGone", "it is gone")
	for range 2 {
		f.wantEvent(t, "Warning DeviceGone it is gone")
	}
	select {
	case event := <-f.events.Events:
		t.Errorf("a further event %q", event)
	default:
	}
	objects := []corev1.ObjectReference{*Pod{"ns", "pod-u1", "u1"}.Reference(), *Pod{"ns", "pod-u2", "u2"}.Reference()}
	if diff := cmp.Diff(objects, f.containers.objects("cam-a1")); diff != "" {
		t.Errorf("pods of cam-a1 (-want +got):\n%s", diff)
	}
	f.remove("c3")
	if pods := f.containers.objects("cam-a1"); len(pods) != 1 {
		t.Errorf("pods of cam-a1 after one has gone: %v", pods)
	}
}
