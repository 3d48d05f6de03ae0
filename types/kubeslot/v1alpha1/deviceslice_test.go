package v1alpha1

import (
	"strings"
	"testing"

	"github.com/kubeslot/kubeslot/types/slot"
)

func TestDeviceCheck(t *testing.T) {
	sound := func(change func(*Device)) *Device {
		d := &Device{ID: "/dev/video0", Properties: map[string]string{"URL": "rtsp://x"}}
		d.Hash = slot.InstanceHash(d.ID, false, "node-a", slot.ShortHash)
		change(d)
		return d
	}
	for name, test := range map[string]struct {
		device *Device
		want   string // in the error; none for a sound device
	}{
		"sound":               {sound(func(*Device) {}), ""},
		"no id":               {sound(func(d *Device) { d.ID = "" }), "without id"},
		"a hash of 7 digits":  {sound(func(d *Device) { d.Hash += "0" }), "has not 6 or 12 digits"},
		"another node's":      {sound(func(d *Device) { d.Hash = slot.InstanceHash(d.ID, false, "node-b", slot.ShortHash) }), "is not that of its id"},
		"not shared, it says": {sound(func(d *Device) { d.Shared = true }), "is not that of its id"},
		"as large as allowed": {sound(func(d *Device) { d.Properties["URL"] = strings.Repeat("x", MaxDeviceBytes-len(d.ID)-len("URL")) }), ""},
		"too large":           {sound(func(d *Device) { d.Properties["URL"] = strings.Repeat("x", MaxDeviceBytes-len(d.ID)-len("URL")+1) }), "65537 bytes, of 65536"},
	} {
		err := test.device.Check("node-a")
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}
