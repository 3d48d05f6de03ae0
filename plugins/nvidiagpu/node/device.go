package node

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/gpu"
	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/device"
)

// visibleDevices is what NVIDIA's container runtime reads: UUIDs, separated by
// commas, or "void" for no GPUs by this way.
const visibleDevices = "NVIDIA_VISIBLE_DEVICES"

// Device is the node's GPUs. Its methods are never called concurrently.
type Device struct {
	lib nvml.Interface
	// load makes NVML's functions callable. It fails where there is no driver.
	load       func() error
	cdiFolders []string

	initialised bool
	seen        bool // that there was a GPU since the start
	gpus        []found
	out         []missing
	health      health
	told        string
}

var (
	_ device.Device        = (*Device)(nil)
	_ device.VariableOwner = (*Device)(nil)
)

// NewDevice returns a Device that reads the library's GPUs, after load.
func NewDevice(lib nvml.Interface, load func() error) *Device {
	return &Device{lib: lib, load: load, cdiFolders: cdiFolders(), health: health{lib: lib, sick: map[string]string{}}}
}

// OwnVariables keeps NVIDIA's container runtime from giving GPUs to whoever asks for them
// in the variable that it reads.
func (d *Device) OwnVariables() map[string]string { return map[string]string{visibleDevices: "void"} }

// New prepares nothing.
func (d *Device) New() error { return nil }

// Start looks for GPUs, so that what is wrong is known at once. A machine without
// driver or GPUs is none of that.
func (d *Device) Start() error { return d.look() }

// look reads the GPUs anew.
func (d *Device) look() error {
	err := d.read()
	if none(err) {
		d.gpus, d.out = nil, nil
		d.tell(fmt.Sprintf("no GPUs are advertised: %v", err))
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the GPUs: %w", err)
	}
	d.seen = d.seen || len(d.gpus) > 0
	d.tell(d.describe())
	return nil
}

func (d *Device) read() error {
	if !d.initialised {
		if err := d.load(); err != nil {
			return fmt.Errorf("%w: %v", &nvmlError{"load", nvml.ERROR_LIBRARY_NOT_FOUND}, err)
		}
		if err := check("Init", d.lib.Init()); err != nil {
			return err
		}
		d.initialised = true
	}
	gpus, out, err := read(d.lib)
	if err != nil {
		// A driver that was loaded anew is another one: begin again.
		d.health.close()
		d.lib.Shutdown()
		d.initialised = false
		return err
	}
	d.health.watch(gpus)
	d.health.listen()
	d.gpus, d.out = nil, out
	for _, g := range gpus {
		if why, sick := d.health.sick[g.UUID]; sick {
			d.out = append(d.out, missing{g.UUID, why})
		} else {
			d.gpus = append(d.gpus, g)
		}
	}
	return nil
}

// describe says in a line what there is.
func (d *Device) describe() string {
	cliques := map[string]bool{}
	for _, g := range d.gpus {
		cliques[g.Clique] = true
	}
	text := fmt.Sprintf("%d GPUs in %d cliques", len(d.gpus), len(cliques))
	for _, m := range d.out {
		text += fmt.Sprintf("; not advertised: %s: %s", m.gpu, m.why)
	}
	return text
}

// tell logs what has changed, once.
func (d *Device) tell(text string) {
	if text != d.told {
		d.told = text
		klog.InfoS("NVIDIA GPUs", "plugin", d.GetName(), "found", text)
	}
}

// UpdateNodeInfo says which GPUs the node has and how they are connected. Those
// that failed are left out.
func (d *Device) UpdateNodeInfo(node *types.NodeInfo) error {
	if err := d.look(); err != nil {
		return err
	}
	if !d.seen {
		return nil // not even none: another plugin may advertise them
	}
	gpus := make([]gpu.GPU, 0, len(d.gpus))
	for _, g := range d.gpus {
		gpus = append(gpus, g.GPU)
	}
	n := int64(len(gpus))
	node.KubeCap[gpu.Resource], node.KubeAlloc[gpu.Resource] = n, n
	gpu.Write(node.Capacity, gpus)
	gpu.Write(node.Allocatable, gpus)
	return nil
}

// Allocate gives the container its GPUs: as CDI devices if CDI specs describe all
// of them by UUID, otherwise in the environment variable that NVIDIA's container
// runtime reads.
func (d *Device) Allocate(_ *types.PodInfo, c *types.ContainerInfo) ([]device.Mount, []string, map[string]string, error) {
	uuids, err := assigned(c)
	if err != nil || len(uuids) == 0 {
		return nil, nil, nil, err
	}
	if len(d.gpus) == 0 { // at a restart, before the first look
		if err := d.look(); err != nil {
			return nil, nil, nil, err
		}
	}
	if err := d.usable(uuids); err != nil {
		return nil, nil, nil, err
	}
	described := cdiDevices(d.cdiFolders)
	var names []string
	for _, uuid := range uuids {
		if described[uuid] {
			names = append(names, cdiKind+"="+uuid)
		}
	}
	if len(names) == len(uuids) {
		return nil, names, map[string]string{visibleDevices: "void"}, nil
	}
	return nil, nil, map[string]string{visibleDevices: strings.Join(uuids, ",")}, nil
}

// assigned returns the UUIDs of the container's GPUs.
func assigned(c *types.ContainerInfo) ([]string, error) {
	var uuids []string
	for want, from := range c.AllocateFrom {
		asked, ok := gpu.ParseName(want)
		if !ok {
			continue // another plugin's
		}
		got, ok := gpu.ParseName(from)
		if !ok || got.Leaf != asked.Leaf {
			return nil, fmt.Errorf("%q was assigned for %q: it is no GPU", from, want)
		}
		if got.Leaf == gpu.Cards {
			uuids = append(uuids, got.GPU)
		}
	}
	slices.Sort(uuids)
	return slices.Compact(uuids), nil
}

// usable returns an error if one of the GPUs cannot be used now, and sorts them
// as NVML does.
func (d *Device) usable(uuids []string) error {
	d.health.listen()
	index := map[string]int{}
	for i, g := range d.gpus {
		index[g.UUID] = i
	}
	var errs []error
	for _, uuid := range uuids {
		if why := d.whyNot(uuid, index); why != "" {
			errs = append(errs, fmt.Errorf("GPU %s was assigned and cannot be used: %s: delete the pod, so that it gets another", uuid, why))
		}
	}
	slices.SortFunc(uuids, func(a, b string) int { return cmp.Compare(index[a], index[b]) })
	return errors.Join(errs...)
}

func (d *Device) whyNot(uuid string, index map[string]int) string {
	if why, sick := d.health.sick[uuid]; sick {
		return why
	}
	for _, m := range d.out {
		if m.gpu == uuid {
			return m.why
		}
	}
	i, ok := index[uuid]
	if !ok {
		return fmt.Sprintf("the node has no such GPU (%s)", d.told)
	}
	// What it last said may be a minute ago.
	if _, err := memory(d.gpus[i].handle); err != nil {
		return err.Error()
	}
	return ""
}

// GetName is KubeGPU's.
func (d *Device) GetName() string { return "nvidiagpu" }
