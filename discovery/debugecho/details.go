package debugecho

import (
	"cmp"
	"errors"
	"fmt"
	"path"

	"github.com/kubeslot/kubeslot/discovery"
)

// details are a Configuration's discoveryDetails. Akri's are descriptions alone; the
// others show every kind of injection. kubecri's --handler-allowed-paths says which
// paths may be named.
type details struct {
	Descriptions []string               `json:"descriptions"`
	Shared       *bool                  `json:"shared"`
	Mounts       []discovery.Mount      `json:"mounts"`
	DeviceSpecs  []discovery.DeviceSpec `json:"deviceSpecs"`
}

// Validate returns what Discover would refuse the request for, without any I/O: an error
// that wraps discovery.ErrInvalid, or nil.
func Validate(request discovery.Request) error {
	_, err := parse(request, true)
	return err
}

// parse returns what is seen of a Request while online. shared is what the details do
// not say otherwise.
func parse(request discovery.Request, shared bool) (discovery.Result, error) {
	var d details
	if err := request.Decode(Name, &d); err != nil {
		return discovery.Result{}, err
	}
	if d.Descriptions == nil {
		return discovery.Result{}, discovery.Invalidf("discoveryDetails of %s: descriptions, the list of devices to find, is missing", Name)
	}
	for i, m := range d.Mounts {
		if err := requirePaths(m.ContainerPath, m.HostPath); err != nil {
			return discovery.Result{}, discovery.Invalidf("discoveryDetails of %s: mounts[%d]: %w", Name, i, err)
		}
	}
	for i := range d.DeviceSpecs {
		s := &d.DeviceSpecs[i]
		if err := requirePaths(s.ContainerPath, s.HostPath); err != nil {
			return discovery.Result{}, discovery.Invalidf("discoveryDetails of %s: deviceSpecs[%d]: %w", Name, i, err)
		}
		s.Permissions = cmp.Or(s.Permissions, "rwm")
	}
	if d.Shared != nil {
		shared = *d.Shared
	}
	result := discovery.Result{Shared: shared}
	for _, description := range d.Descriptions {
		result.Devices = append(result.Devices, discovery.Device{ID: description,
			Properties: map[string]string{DescriptionProperty: description},
			Mounts:     d.Mounts, DeviceSpecs: d.DeviceSpecs})
	}
	return result, nil
}

func requirePaths(containerPath, hostPath string) error {
	if containerPath == "" || hostPath == "" {
		return errors.New("containerPath and hostPath are both needed")
	}
	if !path.IsAbs(containerPath) {
		return fmt.Errorf("containerPath %.64q: want an absolute path", containerPath)
	}
	return discovery.CheckContainerPath(containerPath)
}
