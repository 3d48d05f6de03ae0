package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/gpu"
	gpunode "github.com/kubeslot/kubeslot/plugins/nvidiagpu/node"
	"github.com/kubeslot/kubeslot/types"
)

// smi runs nvidia-smi with the arguments and returns what it prints.
type smi func(ctx context.Context, args ...string) ([]byte, error)

// machine is where the plugin is checked.
type machine struct {
	lib  nvml.Interface
	load func() error // makes lib's functions callable
	smi  smi
	cuda string // libcuda's name or path
	size int    // how many bytes a container copies to each GPU and back
	dev  string // where the device nodes are
}

// checks is one run of them.
type checks struct {
	machine
	report
	plugin *gpunode.Device
	gpus   []gpu.GPU // that the plugin advertises
	nvml   []nvmlGPU // that the machine has
}

// check runs all checks.
func (m machine) check(ctx context.Context) report {
	c := checks{machine: m, plugin: gpunode.NewDevice(m.lib, m.load)}
	if err := c.read(); err != nil {
		c.pass("the plugin reads the GPUs", "", err.Error())
		return c.report
	}
	c.pass("the plugin reads the GPUs", fmt.Sprintf("%d of %d are advertised", len(c.gpus), len(c.nvml)))
	c.compare(ctx)
	c.containers(ctx)
	return c.report
}

// read has the plugin advertise the GPUs, and reads what NVML says beside.
func (c *checks) read() error {
	if err := c.load(); err != nil {
		return fmt.Errorf("this machine has no NVIDIA driver: %w", err)
	}
	info := types.NewNodeInfo()
	if err := errors.Join(c.plugin.New(), c.plugin.Start(), c.plugin.UpdateNodeInfo(info)); err != nil {
		return err
	}
	c.gpus = gpu.Free(info.Allocatable, nil)
	n, code := c.lib.DeviceGetCount()
	for i := 0; i < n && code == nvml.SUCCESS; i++ {
		var g nvmlGPU
		g, code = readGPU(c.lib, i)
		c.nvml = append(c.nvml, g)
	}
	if code != nvml.SUCCESS {
		return fmt.Errorf("NVML: %s", nvml.ErrorString(code))
	}
	if len(c.gpus) == 0 {
		return fmt.Errorf("of %d GPUs none is advertised", n)
	}
	return nil
}

func readGPU(lib nvml.Interface, index int) (g nvmlGPU, code nvml.Return) {
	handle, code := lib.DeviceGetHandleByIndex(index)
	if code != nvml.SUCCESS {
		return g, code
	}
	if g.uuid, code = handle.GetUUID(); code != nvml.SUCCESS {
		return g, code
	}
	pci, code := handle.GetPciInfo()
	if code != nvml.SUCCESS {
		return g, code
	}
	g.bus = fmt.Sprintf("%08x:%02x:%02x.0", pci.Domain, pci.Bus, pci.Device)
	mode, _, code := handle.GetMigMode()
	g.mig = code == nvml.SUCCESS && mode == nvml.DEVICE_MIG_ENABLE // others do not support it
	g.minor, code = handle.GetMinorNumber()
	return g, code
}

// compare compares the GPUs with what nvidia-smi says.
func (c *checks) compare(ctx context.Context) {
	smi, err := ask(ctx, c.smi, parseQuery, "-q", "-x")
	if err != nil {
		c.skip("GPUs against nvidia-smi -q -x", err)
		return
	}
	all := fmt.Sprintf("as nvidia-smi, %d GPUs", len(smi))
	c.pass("UUIDs of GPUs", all, compareInventory(c.gpus, smi)...)
	c.pass("memory", all, compareMemory(c.gpus, smi)...)
	addresses, minors, modes := compareReadings(c.nvml, smi)
	c.pass("PCI addresses", all, addresses...)
	c.pass("minor numbers of device nodes", all, minors...)
	c.pass("MIG modes", all, modes...)

	const groups = "cliques and NUMA nodes against nvidia-smi topo"
	nvlinks, err := ask(ctx, c.smi, parseMatrix, "topo", "-m")
	pcie, err2 := ask(ctx, c.smi, parseMatrix, "topo", "-mp")
	if err := errors.Join(err, err2); err != nil {
		c.skip(groups, err)
		return
	}
	connections, err := links(nvlinks, pcie)
	if err != nil {
		c.skip(groups, err)
		return
	}
	c.pass(groups, describe(c.gpus), compareGroups(c.gpus, smi, connections)...)
}

// ask runs nvidia-smi and reads what it prints.
func ask[T any](ctx context.Context, run smi, parse func([]byte) (T, error), args ...string) (T, error) {
	out, err := run(ctx, args...)
	if err != nil {
		var none T
		return none, err
	}
	return parse(out)
}

func describe(gpus []gpu.GPU) string {
	cliques, nodes := map[string]bool{}, map[string]bool{}
	for _, g := range gpus {
		cliques[g.Clique], nodes[g.Node] = true, true
	}
	return fmt.Sprintf("%d GPUs in %d cliques in %d NUMA nodes", len(gpus), len(cliques), len(nodes))
}

// containers gives each GPU to a container of its own, then no GPU and all of them.
func (c *checks) containers(ctx context.Context) {
	const outside = "CUDA outside of containers"
	free, err := container{CUDA: c.cuda, Bytes: c.size}.run(ctx, isolation{name: "no namespace"})
	switch {
	case err != nil:
		c.skip(outside, err)
		return
	case free.NoCUDA != "":
		c.skip(outside, errors.New(free.NoCUDA))
		return
	}
	c.pass(outside, fmt.Sprintf("sees %d GPUs", len(free.UUIDs)), free.Errors...)

	by, err := c.isolation(ctx)
	if err != nil {
		c.skip("containers", err)
		return
	}
	c.container(ctx, by, "a container without GPU", nil)
	for i := range c.gpus {
		c.container(ctx, by, "a container with "+c.gpus[i].UUID, c.gpus[i:i+1])
	}
	if len(c.gpus) > 1 {
		c.container(ctx, by, "a container with all GPUs", c.gpus)
	}
}

// isolation returns the first one that this machine allows.
func (c *checks) isolation(ctx context.Context) (isolation, error) {
	var errs []error
	for _, by := range isolations {
		_, err := c.with(nil).run(ctx, by)
		if err == nil {
			return by, nil
		}
		errs = append(errs, err)
	}
	if os.Geteuid() != 0 {
		errs = append(errs, errors.New("run it as root"))
	}
	return isolation{}, errors.Join(errs...)
}

// container checks a container with the GPUs.
func (c *checks) container(ctx context.Context, by isolation, name string, gpus []gpu.GPU) {
	if err := c.allocate(gpus); err != nil {
		c.pass(name+": Allocate", "", err.Error())
		return
	}
	given := c.with(gpus)
	found, err := given.run(ctx, by)
	if err != nil {
		c.pass(name, "", err.Error())
		return
	}
	var want differences
	for _, g := range gpus {
		want = append(want, bare(g.UUID))
	}
	var wrong differences
	slices.Sort(want)
	if slices.Sort(found.UUIDs); !slices.Equal(want, found.UUIDs) {
		wrong.add("CUDA sees %q, want %q", found.UUIDs, want)
	}
	if found.NoCUDA != "" && len(gpus) > 0 {
		wrong.add("CUDA does not start: %s", found.NoCUDA)
	}
	detail := fmt.Sprintf("in %s CUDA sees %d GPUs", by.name, len(want))
	if found.NoCUDA != "" {
		detail += ": " + found.NoCUDA
	}
	c.pass(name+": sees", detail, wrong...)
	if len(gpus) > 0 {
		c.pass(name+": copies", fmt.Sprintf("%d MiB to each and back", c.size>>20), found.Errors...)
	}
	if len(given.Others) > 0 {
		var opened differences
		if len(found.Opened) > 0 {
			opened.add("it could open %s", strings.Join(found.Opened, ", "))
		}
		c.pass(name+": others", fmt.Sprintf("cannot open %s", strings.Join(given.Others, ", ")), opened...)
	}
}

// bare is a UUID as CUDA has it.
func bare(uuid string) string { return strings.TrimPrefix(strings.TrimPrefix(uuid, "GPU-"), "MIG-") }

// allocate has the plugin give a container the GPUs, as the scheduler would assign them.
func (c *checks) allocate(gpus []gpu.GPU) error {
	container := types.NewContainerInfo()
	for i, g := range gpus {
		for _, leaf := range []string{gpu.Cards, gpu.Bytes} {
			want := gpu.Name{Node: "0", Clique: "0", GPU: fmt.Sprint(i), Leaf: leaf}.Resource()
			container.AllocateFrom[want] = g.Leaf(leaf)
		}
	}
	_, devices, env, err := c.plugin.Allocate(&types.PodInfo{}, container)
	if err == nil && len(gpus) > 0 && len(devices) == 0 && len(env) == 0 {
		return errors.New("it gives nothing")
	}
	return err
}

// control are the device nodes that each container with a GPU needs, as far as the machine has them.
var control = []string{"nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset"}

// with is the container that has the GPUs' device nodes, and must not open those of the others.
func (c *checks) with(gpus []gpu.GPU) container {
	given := container{CUDA: c.cuda, Bytes: c.size}
	add := func(name string) {
		given.Nodes = append(given.Nodes, node{filepath.Join(c.dev, name), "/dev/" + name})
	}
	for _, g := range c.nvml {
		name := fmt.Sprintf("nvidia%d", g.minor)
		if slices.ContainsFunc(gpus, func(have gpu.GPU) bool { return have.UUID == g.uuid }) {
			add(name)
		} else {
			given.Others = append(given.Others, "/dev/"+name)
		}
	}
	for _, name := range control {
		if _, err := os.Stat(filepath.Join(c.dev, name)); err == nil && len(gpus) > 0 {
			add(name)
		}
	}
	return given
}
