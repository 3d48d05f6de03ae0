package cdi

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"unicode/utf8"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/types/slot"
)

// vendor is the first half of the kind of all our devices, akri.sh/<Configuration>.
const vendor = "akri.sh"

// Name returns the CDI name of an Instance's device, which Instance.spec.cdiName
// has too.
func Name(instance string) string {
	configuration, hash := slot.SplitInstance(instance)
	return vendor + "/" + configuration + "=" + hash
}

// describe returns the device's spec file, or why CDI cannot describe it.
//
// It has no environment: a runtime lets that of a CDI spec win over the container's own,
// and what a device reports must not. Containers get all variables by their requests.
func describe(instance string, device discovery.Device) ([]byte, error) {
	configuration, hash := slot.SplitInstance(instance)
	if c := (configuration + "0")[0]; c < 'a' || c > 'z' {
		return nil, fmt.Errorf("a CDI kind begins with a letter, Configuration %q does not", configuration)
	}
	if len(configuration) == 1 { // CDI's library v1.1.0 panics over such a class, and with it each runtime that reads the file
		return nil, fmt.Errorf("the class of a CDI kind has two characters or more, Configuration %q has one", configuration)
	}
	edits, err := containerEdits(device.Mounts, device.DeviceSpecs)
	if err != nil {
		return nil, err
	}
	if len(edits.Mounts)+len(edits.DeviceNodes) == 0 {
		return nil, fmt.Errorf("the device of Instance %s has neither mounts nor device nodes", instance)
	}
	return encode(&specs.Spec{Kind: vendor + "/" + configuration, Devices: []specs.Device{{Name: hash,
		ContainerEdits: edits}}})
}

// encode returns the spec's file, of the lowest version that has all of it: for older runtimes' sake.
func encode(spec *specs.Spec) (content []byte, err error) {
	if spec.Version, err = specs.MinimumRequiredVersion(spec); err != nil {
		return nil, err
	}
	return json.MarshalIndent(spec, "", "  ")
}

// containerEdits says in CDI's words what a container gets of the node, or why CDI has none for it.
func containerEdits(mounts []discovery.Mount, nodes []discovery.DeviceSpec) (specs.ContainerEdits, error) {
	var edits specs.ContainerEdits
	for _, m := range mounts {
		if !utf8.ValidString(m.HostPath + m.ContainerPath) {
			return edits, fmt.Errorf("the mount of %q at %q is not UTF-8, as the text of a spec is", m.HostPath,
				m.ContainerPath)
		}
		access := "rw"
		if m.ReadOnly {
			access = "ro"
		}
		// As the runtime mounts a CRI mount of private propagation.
		edits.Mounts = append(edits.Mounts, &specs.Mount{HostPath: m.HostPath, ContainerPath: m.ContainerPath, Type: "bind",
			Options: []string{"rbind", "rprivate", access}})
	}
	for _, d := range nodes {
		if !utf8.ValidString(d.HostPath + d.ContainerPath + d.Permissions) {
			return edits, fmt.Errorf("the device node %q at %q is not UTF-8, as the text of a spec is", d.HostPath,
				d.ContainerPath)
		}
		// CRI devices may be directories and links, which the runtime resolves.
		info, err := os.Lstat(d.HostPath)
		if err != nil {
			return edits, err
		}
		if info.Mode()&fs.ModeDevice == 0 {
			return edits, fmt.Errorf("%s is not a device node itself", d.HostPath)
		}
		edits.DeviceNodes = append(edits.DeviceNodes, &specs.DeviceNode{Path: d.ContainerPath, HostPath: d.HostPath, Permissions: d.Permissions})
	}
	return edits, nil
}
