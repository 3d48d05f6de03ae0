package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
	specs "tags.cncf.io/container-device-interface/specs-go"
)

// cdiNodes returns the device nodes of a CDI device such as nvidia.com/gpu=<uuid>, as a container's runtime reads them
// from the specs in the directories: those of the device, and of all devices of its spec.
func cdiNodes(directories []string, name string) ([]node, error) {
	kind, device, _ := strings.Cut(name, "=")
	for _, directory := range directories {
		entries, _ := os.ReadDir(directory) // CDI's directories need not be there
		for _, entry := range entries {
			if ext := filepath.Ext(entry.Name()); ext != ".json" && ext != ".yaml" {
				continue
			}
			var spec specs.Spec
			data, err := os.ReadFile(filepath.Join(directory, entry.Name()))
			if err == nil {
				err = yaml.Unmarshal(data, &spec)
			}
			if err != nil {
				return nil, fmt.Errorf("CDI spec: %w", err)
			}
			i := slices.IndexFunc(spec.Devices, func(d specs.Device) bool { return d.Name == device })
			if spec.Kind != kind || i < 0 {
				continue
			}
			var nodes []node
			for _, edits := range []specs.ContainerEdits{spec.ContainerEdits, spec.Devices[i].ContainerEdits} {
				for _, n := range edits.DeviceNodes {
					nodes = append(nodes, node{Host: cmp.Or(n.HostPath, n.Path), Path: n.Path})
				}
			}
			return nodes, nil
		}
	}
	return nil, fmt.Errorf("no CDI spec in %s has the device %s", strings.Join(directories, ", "), name)
}
