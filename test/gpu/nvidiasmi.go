package main

import (
	"context"
	"encoding/xml"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/gpu"
)

// smiTimeout bounds one call of nvidia-smi. Without persistence mode the driver first initialises each GPU, which takes
// seconds.
const smiTimeout = 2 * time.Minute

// nvidiaSMI runs NVIDIA's tool and returns what it prints.
func nvidiaSMI(ctx context.Context, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, smiTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "nvidia-smi", args...)
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", cmd, err, out)
	}
	return out, nil
}

// smiGPU is a GPU in the output of nvidia-smi -q -x. What it does not know is "N/A".
type smiGPU struct {
	UUID   string     `xml:"uuid"`
	Minor  string     `xml:"minor_number"`
	MIG    string     `xml:"mig_mode>current_mig"`
	Bus    string     `xml:"pci>pci_bus_id"`
	Memory string     `xml:"fb_memory_usage>total"`
	Slices []smiSlice `xml:"mig_devices>mig_device"`
}

type smiSlice struct {
	Memory string `xml:"fb_memory_usage>total"`
}

// parseQuery reads the output of nvidia-smi -q -x: its GPUs in the order of NVML's indexes.
func parseQuery(data []byte) ([]smiGPU, error) {
	var log struct {
		XMLName xml.Name `xml:"nvidia_smi_log"`
		GPUs    []smiGPU `xml:"gpu"`
	}
	if err := xml.Unmarshal(data, &log); err != nil {
		return nil, fmt.Errorf("nvidia-smi -q -x: %w", err)
	}
	for i, g := range log.GPUs {
		if g.UUID == "" {
			return nil, fmt.Errorf("nvidia-smi -q -x: GPU %d has no uuid", i)
		}
	}
	return log.GPUs, nil
}

// smiDevice is a MIG slice in the output of nvidia-smi -L.
type smiDevice struct{ uuid, profile string }

var smiDeviceLine = regexp.MustCompile(`^\s+MIG (\S+)\s+Device\s+[0-9]+: \(UUID: (MIG-[^)]+)\)$`)

// parseList reads the output of nvidia-smi -L: the MIG slices, of which -q -x has neither UUIDs nor profiles.
func parseList(data []byte) ([]smiDevice, error) {
	var list []smiDevice
	for line := range strings.Lines(string(data)) {
		line = strings.TrimRight(line, " \r\n")
		if words := smiDeviceLine.FindStringSubmatch(line); words != nil {
			list = append(list, smiDevice{uuid: words[2], profile: words[1]})
		} else if line != "" && !strings.HasPrefix(line, "GPU ") {
			return nil, fmt.Errorf("nvidia-smi -L: line %q is neither a GPU nor a MIG slice", line)
		}
	}
	return list, nil
}

// mebibytes reads an amount as "81920 MiB". A GPU without memory of its own has "N/A".
func mebibytes(text string) (int64, error) {
	if text == "N/A" {
		return 0, nil
	}
	number, ok := strings.CutSuffix(text, " MiB")
	n, err := strconv.ParseInt(number, 10, 64)
	if !ok || err != nil {
		return 0, fmt.Errorf("nvidia-smi says %q, which is no number of MiB", text)
	}
	return n, nil
}

var (
	escapes  = regexp.MustCompile("\x1b\\[[0-9;]*m") // the header is underlined
	gpuTitle = regexp.MustCompile(`^GPU[0-9]+$`)
)

// parseMatrix reads the output of nvidia-smi topo -m: how each GPU is connected with each, as "NV18", "PIX" or "X" for
// itself. What follows the GPUs, as network cards and affinities, is left out.
func parseMatrix(data []byte) ([][]string, error) {
	var matrix [][]string
	columns := 0
	for line := range strings.Lines(escapes.ReplaceAllString(string(data), "")) {
		words := strings.Fields(line)
		switch {
		case len(words) == 0 || !gpuTitle.MatchString(words[0]):
		case columns == 0:
			for columns < len(words) && gpuTitle.MatchString(words[columns]) {
				columns++
			}
		case len(words) <= columns || words[0] != fmt.Sprintf("GPU%d", len(matrix)) || words[len(matrix)+1] != "X":
			const message = "nvidia-smi topo: line %q is not row %d of a matrix of %d GPUs"
			return nil, fmt.Errorf(message, line, len(matrix), columns)
		default:
			matrix = append(matrix, words[1:columns+1])
		}
	}
	if columns == 0 || len(matrix) != columns {
		return nil, fmt.Errorf("nvidia-smi topo: a matrix of %d columns and %d rows", columns, len(matrix))
	}
	return matrix, nil
}

// paths are the words of nvidia-smi topo for connections without NVLink.
var paths = map[string]gpu.Path{
	"PIX": gpu.SameSwitch, "PXB": gpu.SameSwitch,
	"PHB": gpu.SameNode, "NODE": gpu.SameNode,
	"SYS": gpu.AcrossNodes,
}

// links joins the matrix with NVLinks (topo -m), in which they hide PCIe, and that of PCIe alone (topo -mp).
func links(nvlinks, pcie [][]string) ([][]gpu.Link, error) {
	if len(nvlinks) != len(pcie) {
		return nil, fmt.Errorf("nvidia-smi topo -m has %d GPUs, and -mp %d", len(nvlinks), len(pcie))
	}
	joined := make([][]gpu.Link, len(pcie))
	for i := range pcie {
		joined[i] = make([]gpu.Link, len(pcie))
		for j := range pcie {
			if i == j {
				continue
			}
			path, ok := paths[pcie[i][j]]
			if !ok {
				const message = "nvidia-smi topo -mp: GPU%d and GPU%d are connected by %q, which is unknown"
				return nil, fmt.Errorf(message, i, j, pcie[i][j])
			}
			n := 0
			if number, ok := strings.CutPrefix(nvlinks[i][j], "NV"); ok {
				var err error
				if n, err = strconv.Atoi(number); err != nil {
					return nil, fmt.Errorf("nvidia-smi topo -m: GPU%d and GPU%d: %w", i, j, err)
				}
			}
			joined[i][j] = gpu.Link{NVLinks: n, Path: path}
		}
	}
	return joined, nil
}
