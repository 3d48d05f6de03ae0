package node

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/gpu"
)

// control are the device nodes that all containers with GPUs need, of those that there are.
var control = []string{"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"}

// migMinors has the minor numbers of the device nodes in /dev/nvidia-caps.
const migMinors = "/proc/driver/nvidia-caps/mig-minors"

// deviceNodes returns the device nodes of the GPUs and slices: a GPU's own, and for
// a slice those that open its GPU instance and its compute instance.
func (d *Device) deviceNodes(names []gpu.Name) ([]string, error) {
	var nodes []string
	for _, path := range control {
		if _, err := os.Stat(filepath.Join(d.root, path)); err == nil {
			nodes = append(nodes, path)
		}
	}
	for _, n := range names {
		g, s := find(d.gpus, n.ID())
		minor, code := g.handle.GetMinorNumber()
		if code != nvml.SUCCESS {
			return nil, fmt.Errorf("GPU %s: %w", n.GPU, check("GetMinorNumber", code))
		}
		own := []string{fmt.Sprintf("/dev/nvidia%d", minor)}
		if s != nil {
			caps, err := d.capabilities(minor, s)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", what(n), err)
			}
			own = append(own, caps...)
		}
		for _, path := range own {
			if !slices.Contains(nodes, path) {
				nodes = append(nodes, path)
			}
		}
	}
	return nodes, nil
}

// capabilities returns the device nodes of a slice's instances. Lines of migMinors
// are as "gpu0/gi1/ci0/access 13".
func (d *Device) capabilities(minor int, s *slice) ([]string, error) {
	data, err := os.ReadFile(filepath.Join(d.root, migMinors))
	if err != nil {
		return nil, err
	}
	minors := map[string]string{}
	for line := range strings.Lines(string(data)) {
		if words := strings.Fields(line); len(words) == 2 {
			minors[words[0]] = words[1]
		}
	}
	instance := fmt.Sprintf("gpu%d/gi%d/", minor, s.gpuInstance)
	var nodes []string
	for _, access := range []string{instance + "access", fmt.Sprintf("%sci%d/access", instance, s.computeInstance)} {
		n, ok := minors[access]
		if !ok {
			return nil, fmt.Errorf("%s has no %s", migMinors, access)
		}
		nodes = append(nodes, "/dev/nvidia-caps/nvidia-cap"+n)
	}
	return nodes, nil
}
