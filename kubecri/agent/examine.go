package agent

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/types/slot"
)

// examine names the devices of a report, by Instance. It leaves out those that
// cannot be served and says why, in the order of their ids.
func examine(configuration string, result discovery.Result, node string) (map[string]found, []error) {
	devices := make(map[string]found, len(result.Devices))
	var rejected []error
	byID := slices.SortedStableFunc(slices.Values(result.Devices), func(a, b discovery.Device) int {
		return cmp.Compare(a.ID, b.ID)
	})
	for i, device := range byID {
		if err := check(device); err != nil {
			rejected = append(rejected, fmt.Errorf("device %.64q: %w", device.ID, err))
			continue
		}
		hash := slot.InstanceHash(device.ID, result.Shared, node, slot.ShortHash)
		name := slot.InstanceName(configuration, hash)
		if other, taken := devices[name]; taken {
			err := fmt.Errorf("its hash %s is also that of device %.64q, which comes first", hash, other.ID)
			if i > 0 && byID[i-1].ID == device.ID {
				err = errors.New("reported more than once")
			}
			rejected = append(rejected, fmt.Errorf("device %.64q: %w", device.ID, err))
			continue
		}
		devices[name] = found{Device: device, shared: result.Shared, hash: hash}
	}
	return devices, rejected
}

// check rejects what no Instance could hold and no container be given: one odd
// device must not make the API server refuse, or a runtime fail, for ever.
func check(device discovery.Device) error {
	switch {
	case device.ID == "":
		return errors.New("has no id")
	case strings.ContainsRune(device.ID, 0):
		return errors.New("NUL in the id")
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

// equalDevices reports whether two reports come to the same.
func equalDevices(a, b map[string]found) bool {
	return maps.EqualFunc(a, b, func(a, b found) bool {
		return a.ID == b.ID && a.shared == b.shared && a.hash == b.hash &&
			maps.Equal(a.Properties, b.Properties) &&
			slices.Equal(a.Mounts, b.Mounts) && slices.Equal(a.DeviceSpecs, b.DeviceSpecs)
	})
}

// summary names the first few errors, since an Event holds 1024 characters.
func summary(errs []error) string {
	const most = 5
	var parts []string
	for _, err := range errs[:min(len(errs), most)] {
		parts = append(parts, err.Error())
	}
	if len(errs) > most {
		parts = append(parts, fmt.Sprintf("and %d more", len(errs)-most))
	}
	return strings.Join(parts, "; ")
}
