package agent

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/kubeslot/kubeslot/discovery"
	v0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

const (
	// maxDevices is how many devices of one Configuration a node reports.
	maxDevices = 20_000
	// maxDeviceBytes is how large a device may be, encoded as JSON.
	maxDeviceBytes = 64 << 10
	// maxProperties is how many properties a device may have in a DeviceSlice.
	maxProperties = 256
)

// examine returns the devices of a report, by hash. It leaves out those that cannot
// be served and says why, in the order of their ids. named returns the id of the
// device that has a hash so far, "" for none.
func examine(c *v0.Configuration, node string, result discovery.Result, named func(hash string) string) (map[string]found, []error) {
	devices := make(map[string]found, min(len(result.Devices), maxDevices))
	var rejected []error
	reject := func(id string, err error) { rejected = append(rejected, fmt.Errorf("device %.64q: %w", id, err)) }
	byID := slices.SortedStableFunc(slices.Values(result.Devices), func(a, b discovery.Device) int {
		return cmp.Compare(a.ID, b.ID)
	})
	for i, device := range byID {
		if i > 0 && byID[i-1].ID == device.ID {
			reject(device.ID, errors.New("reported more than once"))
			continue
		}
		if err := check(c, device, result.Shared); err != nil {
			reject(device.ID, err)
			continue
		}
		f := found{Device: device, shared: result.Shared,
			hash: slot.InstanceHash(device.ID, result.Shared, node, c.Spec.HashDigits())}
		if f.size = size(f.report(reference(c))); f.size > maxDeviceBytes {
			reject(device.ID, fmt.Errorf("takes %d bytes with its properties, of %d that are allowed", f.size, maxDeviceBytes))
			continue
		}
		other, taken := devices[f.hash]
		switch {
		case taken && named(f.hash) == device.ID: // the other is the later
			devices[f.hash] = f
			reject(other.ID, collision(c, f))
		case taken:
			reject(device.ID, collision(c, other))
		case len(devices) == maxDevices:
			return devices, append([]error{fmt.Errorf("%d devices are reported, of which the first %d are taken",
				len(byID), maxDevices)}, rejected...)
		default:
			devices[f.hash] = f
		}
	}
	return devices, rejected
}

func collision(c *v0.Configuration, with found) error {
	err := fmt.Errorf("its hash %s is also that of device %.64q, which comes first", with.hash, with.ID)
	if c.Spec.HashDigits() == slot.ShortHash {
		err = fmt.Errorf("%w; a Configuration with spec.instanceNameDigits: 12 tells them apart", err)
	}
	return err
}

// check rejects what no slice could hold and no container be given: one odd
// device must not make the API server refuse, or a runtime fail, for ever.
func check(c *v0.Configuration, device discovery.Device, shared bool) error {
	switch {
	case device.ID == "":
		return errors.New("has no id")
	case strings.ContainsRune(device.ID, 0):
		return errors.New("NUL in the id")
	case !utf8.ValidString(device.ID):
		return errors.New("the id is not text")
	case utf8.RuneCountInString(device.ID) > v1alpha1.MaxIDLength:
		return fmt.Errorf("the id has more than %d characters", v1alpha1.MaxIDLength)
	case len(device.Properties) > maxProperties:
		return fmt.Errorf("has %d properties, of %d that are allowed", len(device.Properties), maxProperties)
	case c.Spec.Discovery != nil && (!shared || len(device.Mounts)+len(device.DeviceSpecs) > 0):
		return errors.New("is for this node alone, as it is not shared, or has mounts or device nodes: with spec.discovery other nodes use it, too")
	}
	for _, key := range slices.Sorted(maps.Keys(device.Properties)) {
		value := device.Properties[key]
		if key == "" || strings.ContainsAny(key, "=\x00") || !utf8.ValidString(key) {
			return fmt.Errorf("property %.64q cannot be the name of an environment variable", key)
		}
		if strings.ContainsRune(value, 0) || !utf8.ValidString(value) {
			return fmt.Errorf("the value of property %.64q is not text", key)
		}
	}
	return nil
}

// report is the device as slices have it. The map is the handler's.
func (f *found) report(c v1alpha1.ConfigurationReference) v1alpha1.Device {
	return v1alpha1.Device{Configuration: c, ID: f.ID, Hash: f.hash, Shared: f.shared, Properties: f.Properties}
}

// size is what the device takes in a slice, with a comma.
func size(d v1alpha1.Device) int {
	text, _ := json.Marshal(d) // strings alone cannot fail
	return len(text) + 1
}

// equalDevices reports whether two reports come to the same.
func equalDevices(a, b map[string]found) bool {
	return maps.EqualFunc(a, b, func(a, b found) bool {
		return a.ID == b.ID && a.shared == b.shared && maps.Equal(a.Properties, b.Properties) &&
			slices.Equal(a.Mounts, b.Mounts) && slices.Equal(a.DeviceSpecs, b.DeviceSpecs)
	})
}

// summary counts the errors and names the first few, since an Event holds 1024
// characters.
func summary(errs []error) string {
	const most = 5
	if len(errs) == 0 {
		return ""
	}
	var parts []string
	for _, err := range errs[:min(len(errs), most)] {
		parts = append(parts, err.Error())
	}
	if len(errs) > most {
		parts = append(parts, fmt.Sprintf("and %d more", len(errs)-most))
	}
	return fmt.Sprintf("%d devices: %s", len(errs), strings.Join(parts, "; "))
}
