package usb

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/discovery/sysfs/sysfstest"
	"github.com/kubeslot/kubeslot/discovery/uevent"
)

// A device that is in use must not become another when a second one has its serial number, nor when that
// one goes, nor when discovery begins again: its slots would be given twice.
func TestADeviceKeepsItsName(t *testing.T) {
	const details = `devices: [{vendor: "10c4"}]`
	d, err := parse(discovery.Request{Details: details})
	if err != nil {
		t.Fatal(err)
	}
	f := newFinder(d, nil)
	var before []discovery.Device // as the node's slices have them
	for _, step := range []struct {
		what, want string
		plugged    []string
		restarted  bool
	}{
		{what: "one", plugged: []string{"zigbee"}, want: "1-2=" + zigbeeID},
		{what: "a second", plugged: []string{"zigbee", "zigbee-clone"},
			want: "1-2=" + zigbeeID + " 1-12=10c4:ea60@" + port + "12"},
		{what: "both after a restart", plugged: []string{"zigbee", "zigbee-clone"}, restarted: true,
			want: "1-2=" + zigbeeID + " 1-12=10c4:ea60@" + port + "12"},
		{what: "the second alone", plugged: []string{"zigbee-clone"}, want: "1-12=10c4:ea60@" + port + "12"},
		{what: "the second alone after a restart", plugged: []string{"zigbee-clone"}, restarted: true,
			want: "1-12=10c4:ea60@" + port + "12"},
		{what: "the first is back, and nothing knows its name", plugged: []string{"zigbee", "zigbee-clone"},
			want: "1-2=10c4:ea60@" + port + "2 1-12=10c4:ea60@" + port + "12"},
	} {
		if step.restarted {
			f = newFinder(d, before)
		}
		f.apply(uevent.Change{All: true, Devices: sysfstest.Devices(t, plugged(t, step.plugged...).Tree)})
		found, _ := f.find()
		names := map[string]string{}
		before = nil
		for id, device := range found {
			names[device.Properties[PortProperty]] = id
			before = append(before, discovery.Device{ID: id, Properties: device.Properties})
		}
		var got []string
		for _, p := range []string{"1-2", "1-12"} {
			if names[p] != "" {
				got = append(got, p+"="+names[p])
			}
		}
		if got := strings.Join(got, " "); got != step.want {
			t.Errorf("%s:\n got %s\nwant %s", step.what, got, step.want)
		}
	}

	t.Log("a stick that is moved to another port is the same one")
	f = newFinder(d, nil)
	for _, name := range []string{"zigbee", "zigbee-clone"} {
		f.apply(uevent.Change{All: true, Devices: sysfstest.Devices(t, plugged(t, name).Tree)})
		if found, _ := f.find(); len(found) != 1 || found[zigbeeID].ID != zigbeeID {
			t.Errorf("%s alone: found %v, want %s", name, slices.Sorted(maps.Keys(found)), zigbeeID)
		}
	}
}
