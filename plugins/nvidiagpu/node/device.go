package node

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/config"
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
	getenv     func(string) string
	root       string // of the host's files
	cdiFolders []string

	environment config.Environment
	config      *config.Config
	warnings    []string // of config
	misconfig   error    // why the configuration that the node is to have is not config
	looked      bool     // for NodeLabels, so that UpdateNodeInfo need not
	initialised bool
	gpus        []found         // that NVML answers for
	broken      []missing       // that it does not answer for
	units       []unit          // that are given out
	out         []missing       // that are not
	kinds       map[string]bool // that were given out since the start
	health      health
	logged      string // by log, last
}

var (
	_ device.Device        = (*Device)(nil)
	_ device.VariableOwner = (*Device)(nil)
	_ device.NodeLabeler   = (*Device)(nil)
	_ device.LossReporter  = (*Device)(nil)
)

// NewDevice returns a Device that reads the library's GPUs, after load. What it
// does with them is configured in the environment: see package config.
func NewDevice(lib nvml.Interface, load func() error) *Device {
	return &Device{lib: lib, load: load, getenv: os.Getenv, root: "/", cdiFolders: cdiFolders(),
		config: &config.Config{}, kinds: map[string]bool{},
		health: health{lib: lib, faults: map[string]*fault{}, seen: map[string]bool{}}}
}

// OwnVariables keeps NVIDIA's container runtime from giving GPUs to whoever asks for them
// in the variable that it reads.
func (d *Device) OwnVariables() map[string]string { return map[string]string{visibleDevices: "void"} }

// New prepares nothing.
func (d *Device) New() error { return nil }

// Start looks for GPUs, so that what is wrong is known at once. A machine without
// driver or GPUs is none of that.
func (d *Device) Start() error {
	var warnings []string
	var err error
	if d.environment, warnings, err = config.FromEnvironment(d.getenv); err != nil {
		return err
	}
	d.warn(warnings)
	d.health.rules = d.environment.Health
	if err := d.configure(""); err != nil && !d.environment.ByLabel() {
		return err
	}
	return d.look()
}

// look reads the GPUs anew.
func (d *Device) look() error {
	err := d.read()
	if none(err) {
		d.gpus, d.broken, d.units, d.out = nil, nil, nil, nil
		d.health.heal(nil)
		d.log(fmt.Sprintf("no GPUs are advertised: %v", err))
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the GPUs: %w", err)
	}
	for _, u := range d.units {
		d.kinds[u.Kind] = true
	}
	d.log(d.describe())
	return nil
}

func (d *Device) read() error {
	if !d.initialised {
		if err := d.load(); err != nil {
			return fmt.Errorf("%w: %v", check("load", nvml.ERROR_LIBRARY_NOT_FOUND), err)
		}
		if err := check("Init", d.lib.Init()); err != nil {
			return err
		}
		d.initialised = true
	}
	gpus, broken, err := read(d.lib)
	if err != nil {
		// A driver that was loaded anew is another one: begin again.
		d.health.close()
		d.lib.Shutdown()
		d.initialised = false
		return err
	}
	d.health.heal(gpus)
	d.health.inherit(gpus)
	d.health.watch(gpus)
	d.health.listen(gpus)
	d.gpus, d.broken = gpus, broken
	d.units, d.out = plan(d.config, gpus)
	d.out = append(d.out, broken...)
	for uuid, f := range d.health.faults {
		d.out = append(d.out, missing{uuid, f.why})
	}
	slices.SortFunc(d.out, func(a, b missing) int { return strings.Compare(a.gpu, b.gpu) })
	d.units = slices.DeleteFunc(d.units, func(u unit) bool { return d.health.why(u.UUID, u.Slice) != "" })
	return nil
}

// describe says in a line what there is.
func (d *Device) describe() string {
	gpus, cliques := map[string]bool{}, map[string]bool{}
	text := ""
	for _, u := range d.units {
		if g, _ := find(d.gpus, u.UUID); u.Slice != "" && !gpus[u.UUID] {
			text += fmt.Sprintf("; %s: %s", u.UUID, g.profiles())
		}
		gpus[u.UUID], cliques[u.Clique] = true, true
	}
	text = fmt.Sprintf("%d GPUs in %d cliques", len(gpus), len(cliques)) + text
	for _, m := range d.out {
		text += fmt.Sprintf("; not advertised: %s: %s", m.gpu, m.why)
	}
	return text
}

// log says what there is, once until it is something else.
func (d *Device) log(text string) {
	if text != d.logged {
		d.logged = text
		klog.InfoS("NVIDIA GPUs", "plugin", d.GetName(), "found", text)
	}
}

// UpdateNodeInfo says which GPUs and slices the node has and how they are connected.
// Those that failed are left out.
func (d *Device) UpdateNodeInfo(node *types.NodeInfo) error {
	if d.misconfig != nil {
		return d.misconfig
	}
	if !d.looked {
		if err := d.look(); err != nil {
			return err
		}
	}
	d.looked = false
	// A kind that was never there is not even none: another plugin may advertise it.
	counts := map[string]int64{}
	for kind := range d.kinds {
		counts[kind] = 0
	}
	gpus := make([]gpu.GPU, 0, len(d.units))
	for _, u := range d.units {
		gpus = append(gpus, u.GPU)
		counts[u.Kind] += u.Count
		if u.share.FailAboveOne {
			node.Allocatable[gpu.FailAboveOne(u.Kind)] = 1
		}
	}
	for kind, n := range counts {
		name := gpu.KindResource(kind)
		node.KubeCap[name], node.KubeAlloc[name] = n, n
	}
	gpu.Write(node.Capacity, gpus)
	gpu.Write(node.Allocatable, gpus)
	return nil
}

// GetName is KubeGPU's.
func (d *Device) GetName() string { return "nvidiagpu" }
