package debugecho

import (
	"errors"
	"fmt"

	"sigs.k8s.io/yaml"

	"github.com/kubeslot/kubeslot/discovery"
)

// details are a Configuration's discoveryDetails. descriptions and shared are for
// everybody; mounts and deviceSpecs, which show every kind of injection, need
// Handler.HostAccess.
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

// parse reads the details and returns what is seen of them while online.
func parse(text string, hostAccess bool) (discovery.Result, error) {
	var d details
	if err := yaml.UnmarshalStrict([]byte(text), &d); err != nil {
		return discovery.Result{}, fmt.Errorf(
			"discoveryDetails of %s: want YAML with descriptions and optionally shared, mounts, deviceSpecs: %w", Name, err)
	}
	if d.Descriptions == nil {
		return discovery.Result{}, fmt.Errorf("discoveryDetails of %s: descriptions, the list of devices to find, is missing", Name)
	}
	if !hostAccess && len(d.Mounts)+len(d.DeviceSpecs) > 0 {
		return discovery.Result{}, fmt.Errorf(
			"discoveryDetails of %s: mounts and deviceSpecs may name any path of the node, so they are off: kubecri's --debug-echo-host-access allows them", Name)
	}
	template := discovery.Device{}
	for i, m := range d.Mounts {
		if err := requirePaths(m.ContainerPath, m.HostPath); err != nil {
			return discovery.Result{}, fmt.Errorf("discoveryDetails of %s: mounts[%d]: %w", Name, i, err)
		}
		template.Mounts = append(template.Mounts, discovery.Mount(m))
	}
	for i, s := range d.DeviceSpecs {
		if err := requirePaths(s.ContainerPath, s.HostPath); err != nil {
			return discovery.Result{}, fmt.Errorf("discoveryDetails of %s: deviceSpecs[%d]: %w", Name, i, err)
		}
		if s.Permissions == "" {
			s.Permissions = "rwm"
		}
		template.DeviceSpecs = append(template.DeviceSpecs, discovery.DeviceSpec(s))
	}
	result := discovery.Result{Shared: d.Shared == nil || *d.Shared}
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
	return nil
}
