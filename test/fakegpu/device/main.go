// The node's half of the NVIDIA GPU plugin, with a fake of NVML: for tests, and to
// try the plugin out on a machine without GPUs. It advertises GPUs that do not
// exist, and containers get none.
//
// The file fakegpu in kubecri's state folder ($STATE_DIR), read anew each time,
// says which: a layout of package fakenvml on the first line, which is taken once,
// then lines "lost <index>". Without the file there are two NVLink cliques of four.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/fakenvml"
	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/node"
	"github.com/kubeslot/kubeslot/types/device"
)

// CreateDevicePlugin is what kubecri looks up.
func CreateDevicePlugin() (device.Device, error) {
	name, lost, err := read()
	if err != nil {
		return nil, err
	}
	layout, ok := fakenvml.Layouts[name]
	if !ok {
		return nil, fmt.Errorf("fake GPUs: there is no layout %q", name)
	}
	machine := fakenvml.New(layout)
	machine.OnCount = func() {
		_, now, err := read()
		if err != nil {
			return // half written: as it was
		}
		for i := range layout.GPUs {
			machine.Lose(i, now[i])
		}
	}
	for i := range lost {
		machine.Lose(i, true)
	}
	return node.NewDevice(machine, func() error { return nil }), nil
}

func read() (layout string, lost map[int]bool, err error) {
	layout, lost = "two-cliques", map[int]bool{}
	data, err := os.ReadFile(filepath.Join(os.Getenv("STATE_DIR"), "fakegpu"))
	if os.IsNotExist(err) {
		return layout, lost, nil
	}
	if err != nil {
		return "", nil, fmt.Errorf("fake GPUs: %w", err)
	}
	for i, line := range strings.Split(strings.TrimSpace(string(data)), "\n") {
		var index int
		switch {
		case i == 0:
			layout = strings.TrimSpace(line)
		default:
			if _, err := fmt.Sscanf(line, "lost %d", &index); err != nil {
				return "", nil, fmt.Errorf("fake GPUs: line %q: want \"lost <index>\"", line)
			}
			lost[index] = true
		}
	}
	return layout, lost, nil
}

func main() {}
