package debugecho

import (
	"errors"
	"fmt"
	"path"

	"github.com/kubeslot/kubeslot/discovery"
)

// details are a Configuration's discoveryDetails. Akri's are descriptions alone; the
// others show every kind of injection. kubecri's --handler-allowed-paths says which
// paths may be named.
type details struct {
	Descriptions []string     `json:"descriptions"`
	Shared       *bool        `json:"shared"`
	Mounts       []mount      `json:"mounts"`
	DeviceSpecs  []deviceSpec `json:"deviceSpecs"`
}

type mount struct {
	ContainerPath string `json:"containerPath"`
	HostPath      string `json:"hostPath"`
	ReadOnly      bool   `json:"readOnly"`
}

type deviceSpec struct {
	ContainerPath string `json:"containerPath"`
	HostPath      string `json:"hostPath"`
	Permissions   string `json:"permissions"`
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
	template := discovery.Device{}
	for i, m := range d.Mounts {
		if err := requirePaths(m.ContainerPath, m.HostPath); err != nil {
			return discovery.Result{}, discovery.Invalidf("discoveryDetails of %s: mounts[%d]: %w", Name, i, err)
		}
		template.Mounts = append(template.Mounts, discovery.Mount(m))
	}
	for i, s := range d.DeviceSpecs {
		if err := requirePaths(s.ContainerPath, s.HostPath); err != nil {
			return discovery.Result{}, discovery.Invalidf("discoveryDetails of %s: deviceSpecs[%d]: %w", Name, i, err)
		}
		if s.Permissions == "" {
			s.Permissions = "rwm"
		}
		template.DeviceSpecs = append(template.DeviceSpecs, discovery.DeviceSpec(s))
	}
	if d.Shared != nil {
		shared = *d.Shared
	}
	result := discovery.Result{Shared: shared}
	for _, description := range d.Descriptions {
		device := template
		device.ID = description
		device.Properties = map[string]string{DescriptionProperty: description}
		result.Devices = append(result.Devices, device)
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
