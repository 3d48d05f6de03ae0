package watch

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// lists is what the cache keeps of a node's slice with the device.
func lists(t *testing.T, s *sharing, node string, d v1alpha1.Device) v1alpha1.Device {
	t.Helper()
	slice := &v1alpha1.DeviceSlice{Spec: v1alpha1.DeviceSliceSpec{NodeName: node, Devices: []v1alpha1.Device{d}}}
	kept, err := s.transform(slice.DeepCopy())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(slice, kept); diff != "" {
		t.Errorf("the slice is another (-want +got):\n%s", diff)
	}
	return kept.(*v1alpha1.DeviceSlice).Spec.Devices[0]
}

// What nodes say alike of a shared device is in memory once, and nothing that one says is another's.
func TestSharing(t *testing.T) {
	camera := v1alpha1.Device{Configuration: v1alpha1.ConfigurationReference{Namespace: "default", Name: "cam"},
		ID: "gate", Hash: "a1b2c3", Shared: true, Properties: map[string]string{"URL": "rtsp://gate"}}
	with := func(change func(*v1alpha1.Device)) v1alpha1.Device {
		d := *camera.DeepCopy()
		change(&d)
		return d
	}
	once := func(a, b v1alpha1.Device) bool {
		return reflect.ValueOf(a.Properties).Pointer() == reflect.ValueOf(b.Properties).Pointer()
	}
	for name, test := range map[string]struct {
		second v1alpha1.Device
		once   bool
	}{
		"equal":             {with(func(*v1alpha1.Device) {}), true},
		"other properties":  {with(func(d *v1alpha1.Device) { d.Properties["URL"] = "rtsp://gate-2" }), false},
		"another id":        {with(func(d *v1alpha1.Device) { d.ID = "yard" }), false},
		"another namespace": {with(func(d *v1alpha1.Device) { d.Configuration.Namespace = "shop" }), false},
		"another device":    {with(func(d *v1alpha1.Device) { d.Hash = "a1b2c4" }), false},
		"local":             {with(func(d *v1alpha1.Device) { d.Shared = false }), false},
		"gone":              {with(func(d *v1alpha1.Device) { d.Gone = true }), true},
	} {
		s := newSharing()
		first := lists(t, s, "a", camera)
		second := lists(t, s, "b", test.second)
		if got := once(first, second); got != test.once {
			t.Errorf("%s: in memory once: %t, want %t", name, got, test.once)
		}
	}
	s := newSharing()
	first := lists(t, s, "a", camera)
	s.older, s.recent = s.recent, map[string]v1alpha1.Device{}
	if second := lists(t, s, "b", camera); !once(first, second) || len(s.recent) != 1 {
		t.Errorf("a device of the generation before is not remembered: %v", s.recent)
	}
}

// A node that lists other devices all the time has the controller remember so many bytes of them.
func TestSharingIsBounded(t *testing.T) {
	s := newSharing()
	large := strings.Repeat("x", 60_000)
	for i := range 3000 { // 180 MB
		lists(t, s, "a", v1alpha1.Device{Configuration: v1alpha1.ConfigurationReference{Name: "cam"}, ID: fmt.Sprint(i),
			Hash: fmt.Sprintf("%06x", i), Shared: true, Properties: map[string]string{"TEXT": large}})
		bytes := 0
		for _, generation := range []map[string]v1alpha1.Device{s.recent, s.older} {
			for _, d := range generation {
				bytes += sizeOf(&d)
			}
		}
		if bytes > 2*maxGeneration+2*len(large) {
			t.Fatalf("after %d devices %d bytes are remembered", i+1, bytes)
		}
	}
	if len(s.older) == 0 {
		t.Error("no generation was filled")
	}
}
