package reports

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
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
	// maxProperties is how many properties a device may have in a DeviceSlice.
	maxProperties = 256
	// maxPaths is how many mounts and device nodes a device may have, and maxPathBytes
	// how long a path is (PATH_MAX, without NUL).
	maxPaths     = 256
	maxPathBytes = 4095
	// maxRejections is how many devices are named that are left out.
	maxRejections = 1000
)

// Examination is what Examine goes by, besides the report.
type Examination struct {
	Configuration *v0.Configuration
	Node          string
	// Known is the source's last report as it was examined: what has not changed is not
	// looked at again.
	Known map[string]Device
	// Named returns the id of the device that has a hash so far, "" for none.
	Named func(hash string) string
	// Allowed returns an error for a device whose paths must not be given to containers.
	Allowed func(discovery.Device) error
}

// Examine returns the devices of a report, by hash. It leaves out those that cannot
// be served and says why, in the order of their ids.
func (e *Examination) Examine(result discovery.Result) (map[string]Device, []error) {
	devices := make(map[string]Device, min(len(result.Devices), maxDevices))
	var rejected []error
	byID := slices.SortedStableFunc(slices.Values(result.Devices), func(a, b discovery.Device) int {
		return cmp.Compare(a.ID, b.ID)
	})
	for i, device := range byID {
		if i > 0 && byID[i-1].ID == device.ID {
			rejected = reject(rejected, rejection(device.ID, errors.New("reported more than once")))
			continue
		}
		f, err := e.device(device, result.Shared)
		if err != nil {
			rejected = reject(rejected, rejection(device.ID, err))
			continue
		}
		other, taken := devices[f.Hash]
		switch {
		case taken && e.Named(f.Hash) == device.ID: // the other is the later
			devices[f.Hash] = f
			rejected = reject(rejected, rejection(other.ID, collision(f)))
		case taken:
			rejected = reject(rejected, rejection(device.ID, collision(other)))
		case len(devices) == maxDevices:
			return devices, append([]error{fmt.Errorf("%d devices are reported, of which the first %d are taken",
				len(byID), maxDevices)}, rejected...)
		default:
			devices[f.Hash] = f
		}
	}
	return devices, rejected
}

// device is the device as it is taken, or why it is not.
func (e *Examination) device(device discovery.Device, shared bool) (Device, error) {
	c := e.Configuration
	f := Device{Device: device, Shared: shared, Hash: slot.InstanceHash(device.ID, shared, e.Node, c.Spec.HashDigits())}
	if known, ok := e.Known[f.Hash]; ok && known.Equal(&f) {
		return known, nil
	}
	if err := check(c, device, shared); err != nil {
		return Device{}, err
	}
	if err := e.Allowed(device); err != nil {
		return Device{}, err
	}
	most := f.InSlice(Reference(c))
	most.Unschedulable, most.Gone = true, true // as it may become
	if f.Size = Size(most); f.Size > v1alpha1.MaxDeviceBytes {
		return Device{}, fmt.Errorf("takes %d bytes with its properties, of %d that are allowed", f.Size, v1alpha1.MaxDeviceBytes)
	}
	return f, nil
}

// unnamed counts devices that are left out besides those that are named.
type unnamed int

func (n unnamed) Error() string { return fmt.Sprintf("%d more are left out", int(n)) }

// reject adds an error to all, or only counts it when these are many.
func reject(all []error, err error) []error {
	if len(all) < maxRejections {
		return append(all, err)
	}
	if n, ok := all[len(all)-1].(unnamed); ok {
		all[len(all)-1] = n + 1
		return all
	}
	return append(all, unnamed(1))
}

// Count is how many devices the errors are about.
func Count(errs []error) (n int) {
	for _, err := range errs {
		if more, ok := err.(unnamed); ok {
			n += int(more)
		} else {
			n++
		}
	}
	return n
}

// rejection says of a device that it is left out.
func rejection(id string, err error) error { return fmt.Errorf("device %.64q: %w", id, err) }

// collision says that another device has the hash.
func collision(with Device) error {
	err := fmt.Errorf("its hash %s is also that of device %.64q, which comes first", with.Hash, with.ID)
	if len(with.Hash) == slot.ShortHash {
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
	return checkPaths(device)
}

// checkPaths rejects mounts and device nodes that no container can have. Which paths of
// the node are allowed is another question.
func checkPaths(device discovery.Device) error {
	if n := len(device.Mounts) + len(device.DeviceSpecs); n > maxPaths {
		return fmt.Errorf("has %d mounts and device nodes, of %d that are allowed", n, maxPaths)
	}
	check := func(what, path string) error {
		if !filepath.IsAbs(path) || len(path) > maxPathBytes || strings.ContainsRune(path, 0) || !utf8.ValidString(path) {
			return fmt.Errorf("%s %.64q is not the absolute path of a file", what, path)
		}
		return nil
	}
	for _, m := range device.Mounts {
		if err := errors.Join(check("hostPath", m.HostPath), check("containerPath", m.ContainerPath), discovery.CheckContainerPath(m.ContainerPath)); err != nil {
			return fmt.Errorf("mount: %w", err)
		}
	}
	for _, d := range device.DeviceSpecs {
		if err := errors.Join(check("hostPath", d.HostPath), check("containerPath", d.ContainerPath), discovery.CheckContainerPath(d.ContainerPath)); err != nil {
			return fmt.Errorf("device node: %w", err)
		}
		if strings.Trim(d.Permissions, "rwm") != "" {
			return fmt.Errorf("device node %.64q: permissions %.64q are not a subset of rwm", d.HostPath, d.Permissions)
		}
	}
	return nil
}

// InSlice is the device as slices have it. The map is the handler's.
func (f *Device) InSlice(c v1alpha1.ConfigurationReference) v1alpha1.Device {
	return v1alpha1.Device{Configuration: c, ID: f.ID, Hash: f.Hash, Shared: f.Shared, Unschedulable: f.Unschedulable, Properties: f.Properties}
}

// Size is what the device takes of v1alpha1.MaxSliceBytes: its text, with a comma, and at
// least its share of v1alpha1.MaxSliceProperties.
func Size(d v1alpha1.Device) int {
	text, _ := json.Marshal(d) // strings alone cannot fail
	return max(len(text)+1, len(d.Properties)*(v1alpha1.MaxSliceBytes/v1alpha1.MaxSliceProperties))
}

// Equal reports whether two reports of a device come to the same.
func (f *Device) Equal(other *Device) bool {
	return f.ID == other.ID && f.Shared == other.Shared && f.Unschedulable == other.Unschedulable && len(f.Differences(other)) == 0
}

// Differences are what a container gets of the device that is another now, in words.
func (f *Device) Differences(now *Device) []string {
	var all []string
	for key := range f.Properties {
		if value, ok := now.Properties[key]; !ok || value != f.Properties[key] {
			all = append(all, "property "+key)
		}
	}
	for key := range now.Properties {
		if _, ok := f.Properties[key]; !ok {
			all = append(all, "property "+key)
		}
	}
	slices.Sort(all)
	if !slices.Equal(f.Mounts, now.Mounts) {
		all = append(all, "mounts")
	}
	if !slices.Equal(f.DeviceSpecs, now.DeviceSpecs) {
		all = append(all, "device nodes")
	}
	return all
}

// EqualDevices reports whether two reports come to the same.
func EqualDevices(a, b map[string]Device) bool {
	return maps.EqualFunc(a, b, func(a, b Device) bool { return a.Equal(&b) })
}

// Summary counts the errors and names the first few, since an Event holds 1024
// characters.
func Summary(errs []error) string {
	const most = 5
	if len(errs) == 0 {
		return ""
	}
	var parts []string
	for _, err := range errs[:min(len(errs), most)] {
		parts = append(parts, err.Error())
	}
	if len(errs) > most {
		parts = append(parts, fmt.Sprintf("and %d more", Count(errs)-most))
	}
	return fmt.Sprintf("%d devices: %s", Count(errs), strings.Join(parts, "; "))
}
