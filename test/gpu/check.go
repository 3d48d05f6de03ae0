package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
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
	cuda string   // libcuda's name or path
	size int      // how many bytes a container copies to each GPU and back
	cdi  []string // the directories of CDI specs
}

// checks is one run of them.
type checks struct {
	machine
	report
	plugin *gpunode.Device
	units  []gpu.GPU // that the plugin advertises: GPUs and MIG slices
	nvml   []nvmlGPU // that the machine has
}

// configure has the plugin give all that there is, and the device nodes with it, and CUDA see all that it is given.
func configure() {
	os.Unsetenv("CONFIG_FILE")
	os.Unsetenv("CUDA_VISIBLE_DEVICES")
	os.Setenv("MIG_STRATEGY", "mixed")
	os.Setenv("PASS_DEVICE_SPECS", "true")
}

// check runs all checks.
func (m machine) check(ctx context.Context) report {
	configure()
	c := checks{machine: m, plugin: gpunode.NewDevice(m.lib, m.load)}
	if err := c.read(); err != nil {
		c.pass("the plugin reads the GPUs", "", err.Error())
		return c.report
	}
	c.pass("the plugin reads the GPUs", fmt.Sprintf("of %d it advertises %s", len(c.nvml), describe(c.units)))
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
	for _, name := range slices.Sorted(maps.Keys(info.KubeAlloc)) {
		kind, _ := gpu.Kind(name)
		units := gpu.Free(info.Allocatable, nil, kind)
		if n := info.KubeAlloc[name]; int64(len(units)) != n {
			return fmt.Errorf("%s is %d, and %d are in groups", name, n, len(units))
		}
		c.units = append(c.units, units...)
	}
	n, code := c.lib.DeviceGetCount()
	for i := 0; i < n && code == nvml.SUCCESS; i++ {
		var g nvmlGPU
		g, code = readGPU(c.lib, i)
		c.nvml = append(c.nvml, g)
	}
	if code != nvml.SUCCESS {
		return fmt.Errorf("NVML: %s", nvml.ErrorString(code))
	}
	if len(c.units) == 0 {
		return fmt.Errorf("of %d GPUs it advertises none", n)
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
	c.pass("UUIDs of GPUs", all, compareInventory(c.units, smi)...)
	c.pass("memory", all, compareMemory(c.units, smi)...)
	addresses, minors, modes := compareReadings(c.nvml, smi)
	c.pass("PCI addresses", all, addresses...)
	c.pass("minor numbers of device nodes", all, minors...)
	c.pass("MIG modes", all, modes...)

	const parts = "MIG slices against nvidia-smi -L"
	if list, err := ask(ctx, c.smi, parseList, "-L"); err != nil {
		c.skip(parts, err)
	} else {
		c.pass(parts, fmt.Sprintf("%d slices, UUIDs and profiles", len(list)), compareSlices(c.units, list)...)
	}

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
	c.pass(groups, describe(c.units), compareGroups(c.units, smi, connections)...)
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

func describe(units []gpu.GPU) string {
	whole, cliques, nodes := 0, map[string]bool{}, map[string]bool{}
	for _, u := range units {
		if u.Slice == "" {
			whole++
		}
		cliques[u.Clique], nodes[u.Node] = true, true
	}
	const text = "%d GPUs and %d MIG slices in %d cliques in %d NUMA nodes"
	return fmt.Sprintf(text, whole, len(units)-whole, len(cliques), len(nodes))
}

// containers gives each GPU and each slice to a container of its own, then nothing, and all GPUs.
func (c *checks) containers(ctx context.Context) {
	const outside = "CUDA outside of containers"
	free, err := c.container(nil).run(ctx, isolation{name: "no namespace"})
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
	trials := c.trials()
	for _, t := range trials {
		if t.err != nil {
			c.pass(t.name+": Allocate", "", t.err.Error())
			continue
		}
		c.try(ctx, by, t, others(trials, t))
	}
}

// isolation returns the first one that this machine allows.
func (c *checks) isolation(ctx context.Context) (isolation, error) {
	var errs []error
	for _, by := range isolations {
		_, err := c.container(nil).run(ctx, by)
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

// trial is a container that is tried.
type trial struct {
	name  string
	units []gpu.GPU
	nodes []node // that Allocate gives
	err   error  // of Allocate
}

// trials are the containers to try. A CUDA program uses one MIG slice, so that there is none with several.
func (c *checks) trials() []trial {
	trials := []trial{{name: "no GPU"}}
	var whole []gpu.GPU
	for i, u := range c.units {
		trials = append(trials, trial{name: u.ID(), units: c.units[i : i+1]})
		if u.Slice == "" {
			whole = append(whole, u)
		}
	}
	if len(whole) > 1 {
		trials = append(trials, trial{name: "all GPUs", units: whole})
	}
	for i, t := range trials {
		trials[i].nodes, trials[i].err = c.allocate(t.units)
	}
	return trials
}

// allocate has the plugin give a container the units, as the scheduler would assign them, and returns the device nodes.
func (c *checks) allocate(units []gpu.GPU) ([]node, error) {
	container := types.NewContainerInfo()
	for i, u := range units {
		for _, leaf := range []string{gpu.Leaf(u.Kind), gpu.Bytes} {
			want := gpu.Name{Node: "0", Clique: "0", GPU: fmt.Sprint(i), Leaf: leaf}
			if u.Slice != "" {
				want.Slice = "0"
			}
			container.AllocateFrom[want.Resource()] = u.Leaf(leaf)
		}
	}
	_, devices, env, err := c.plugin.Allocate(&types.PodInfo{}, container)
	if err != nil {
		return nil, err
	}
	if len(units) > 0 && len(devices) == 0 {
		return nil, fmt.Errorf("it gives no device, and the environment %v", env)
	}
	var nodes []node
	for _, device := range devices {
		if filepath.IsAbs(device) {
			nodes = append(nodes, node{device, device})
			continue
		}
		described, err := cdiNodes(c.cdi, device)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, described...)
	}
	return nodes, nil
}

// others are the device nodes that other containers were given, and this one was not.
func others(trials []trial, t trial) []string {
	var paths []string
	for _, other := range trials {
		for _, n := range other.nodes {
			if !slices.Contains(t.nodes, n) && !slices.Contains(paths, n.Path) {
				paths = append(paths, n.Path)
			}
		}
	}
	return paths
}

func (c *checks) container(nodes []node) container {
	return container{Nodes: nodes, CUDA: c.cuda, Bytes: c.size}
}

// try adds the rows of a container.
func (c *checks) try(ctx context.Context, by isolation, t trial, others []string) {
	name := "a container with " + t.name
	given := c.container(t.nodes)
	given.Others = others
	found, err := given.run(ctx, by)
	if err != nil {
		c.pass(name, "", err.Error())
		return
	}
	var want []string
	for _, u := range t.units {
		want = append(want, bare(u.ID()))
	}
	slices.Sort(want)
	slices.Sort(found.UUIDs)
	detail := fmt.Sprintf("in %s CUDA sees %d of %d. %s", by.name, len(found.UUIDs), len(want), found.NoCUDA)
	var wrong differences
	if !slices.Equal(want, found.UUIDs) {
		wrong.add("CUDA sees %q, want %q. %s", found.UUIDs, want, found.NoCUDA)
	}
	c.pass(name+": sees", detail, wrong...)
	if len(want) > 0 {
		c.pass(name+": copies", fmt.Sprintf("%d MiB to each and back", c.size>>20), found.Errors...)
	}
	if len(others) > 0 {
		var opened differences
		if len(found.Opened) > 0 {
			opened.add("it could open %s", strings.Join(found.Opened, ", "))
		}
		c.pass(name+": others", fmt.Sprintf("cannot open %s", strings.Join(others, ", ")), opened...)
	}
}

// bare is a UUID as CUDA has it.
func bare(uuid string) string { return strings.TrimPrefix(strings.TrimPrefix(uuid, "GPU-"), "MIG-") }
