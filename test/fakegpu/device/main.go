// The node's half of the NVIDIA GPU plugin, with a fake of NVML: for tests, and to
// try the plugin out on a machine without GPUs. It advertises GPUs that do not
// exist, and containers get none.
//
// The file fakegpu in kubecri's state folder ($STATE_DIR), read anew each time,
// says which: a layout of package fakenvml on the first line, which is taken once,
// then lines "lost <index>", and "mig <index> <profile> ..." for a GPU that is
// partitioned otherwise than in the layout. Without the file there are two NVLink
// cliques of four.
//
// CONFIG_FILE is the directory gpu-config beside that file, if there is one.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/fakenvml"
	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/node"
	"github.com/kubeslot/kubeslot/types/device"
)

// CreateDevicePlugin is what kubecri looks up.
func CreateDevicePlugin() (device.Device, error) {
	s, err := read()
	if err != nil {
		return nil, err
	}
	directory := filepath.Join(os.Getenv("STATE_DIR"), "gpu-config")
	if _, err := os.Stat(directory); err == nil {
		os.Setenv("CONFIG_FILE", directory)
	}
	layout, ok := fakenvml.Layouts[s.layout]
	if !ok {
		return nil, fmt.Errorf("fake GPUs: there is no layout %q", s.layout)
	}
	machine := fakenvml.New(layout)
	if err := s.apply(machine, layout.GPUs); err != nil {
		return nil, fmt.Errorf("fake GPUs: %w", err)
	}
	count := machine.DeviceGetCountFunc
	machine.DeviceGetCountFunc = func() (int, nvml.Return) {
		if now, err := read(); err == nil { // else it is half written: as it was
			_ = now.apply(machine, layout.GPUs)
		}
		return count()
	}
	return node.NewDevice(machine, func() error { return nil }), nil
}

// state is what the file says.
type state struct {
	layout string
	lost   map[int]bool
	mig    map[int][]string // the profiles of a GPU's slices
}

// apply has the machine be so.
func (s state) apply(machine *fakenvml.Machine, gpus int) error {
	for i := range gpus {
		machine.Lose(i, s.lost[i])
		profiles, ok := s.mig[i]
		if !ok {
			machine.Restore(i)
		} else if err := machine.Slice(i, profiles...); err != nil {
			return err
		}
	}
	return nil
}

func read() (state, error) {
	s := state{layout: "two-cliques", lost: map[int]bool{}, mig: map[int][]string{}}
	data, err := os.ReadFile(filepath.Join(os.Getenv("STATE_DIR"), "fakegpu"))
	if os.IsNotExist(err) {
		return s, nil
	}
	if err != nil {
		return s, fmt.Errorf("fake GPUs: %w", err)
	}
	layout, rest, _ := strings.Cut(strings.TrimSpace(string(data)), "\n")
	s.layout = strings.TrimSpace(layout)
	for line := range strings.Lines(rest) {
		words := append(strings.Fields(line), "", "")
		index, err := strconv.Atoi(words[1])
		switch {
		case err == nil && words[0] == "lost":
			s.lost[index] = true
		case err == nil && words[0] == "mig":
			s.mig[index] = words[2 : len(words)-2]
		default:
			return s, fmt.Errorf("fake GPUs: line %q: want \"lost <index>\" or \"mig <index> <profile> ...\"", line)
		}
	}
	return s, nil
}

func main() {}
