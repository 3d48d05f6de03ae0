package node

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/config"
	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/gpu"
	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/device"
)

// Allocate gives the container its GPUs and slices: as CDI devices if CDI specs
// describe all of them by UUID, otherwise in the environment variable that NVIDIA's
// container runtime reads, with their device nodes if the configuration says so.
func (d *Device) Allocate(
	_ *types.PodInfo, c *types.ContainerInfo,
) ([]device.Mount, []string, map[string]string, error) {
	names, err := assigned(c)
	if err != nil || len(names) == 0 {
		return nil, nil, nil, err
	}
	if len(d.gpus) == 0 { // at a restart, before the first look
		if err := d.look(); err != nil {
			return nil, nil, nil, err
		}
	}
	share, err := d.shared(names)
	if err != nil {
		return nil, nil, nil, err
	}
	if names, err = d.usable(names); err != nil {
		return nil, nil, nil, err
	}
	ids := make([]string, len(names))
	for i, n := range names {
		ids[i] = n.ID()
	}
	env := map[string]string{visibleDevices: "void"}
	var mounts []device.Mount
	if share.MPS {
		mounts = mps(d.config.MPSRoot, share.Kind, env)
	}
	if devices := described(ids, cdiDevices(d.cdiFolders)); devices != nil {
		return mounts, devices, env, nil
	}
	env[visibleDevices] = strings.Join(ids, ",")
	var nodes []string
	if d.config.PassDeviceSpecs {
		nodes, err = d.deviceNodes(names)
	}
	return mounts, nodes, env, err
}

// assigned returns the leaves that the container was assigned; a GPU that is shared
// may be there more than once.
func assigned(c *types.ContainerInfo) ([]gpu.Name, error) {
	var names []gpu.Name
	for want, from := range c.AllocateFrom {
		asked, ok := gpu.ParseName(want)
		if !ok {
			continue // another plugin's
		}
		got, ok := gpu.ParseName(from)
		if !ok || got.Leaf != asked.Leaf {
			return nil, fmt.Errorf("%q was assigned for %q: it is no GPU", from, want)
		}
		if got.Leaf != gpu.Bytes {
			names = append(names, got)
		}
	}
	return names, nil
}

// shared returns how what was assigned is shared. It refuses what the scheduler should have refused.
func (d *Device) shared(names []gpu.Name) (config.Share, error) {
	count := map[string]int{}
	var share config.Share
	for _, n := range names {
		for _, u := range d.units {
			if u.ID() != n.ID() || gpu.Leaf(u.Kind) != n.Leaf {
				continue
			}
			if u.share.Replicas > 1 {
				share = u.share
			}
			if count[u.Kind]++; count[u.Kind] > 1 && u.share.FailAboveOne {
				return share, fmt.Errorf("more than one %s was assigned, and the node's configuration allows "+
					"a container one (failRequestsGreaterThanOne, or MPS)", gpu.KindResource(u.Kind))
			}
		}
	}
	return share, nil
}

// usable returns each GPU and slice once, in NVML's order, or an error if one of them cannot be used now.
func (d *Device) usable(names []gpu.Name) ([]gpu.Name, error) {
	order := map[string]int{}
	for _, g := range d.gpus {
		order[g.UUID] = len(order)
		for _, s := range g.slices {
			order[s.uuid] = len(order)
		}
	}
	slices.SortFunc(names, func(a, b gpu.Name) int {
		return cmp.Or(order[a.ID()]-order[b.ID()], strings.Compare(a.ID(), b.ID()))
	})
	names = slices.CompactFunc(names, func(a, b gpu.Name) bool { return a.ID() == b.ID() })
	d.health.listen(d.gpus)
	var errs []error
	for _, n := range names {
		why := d.whyNot(n)
		if why == "" {
			why = d.silent(n)
		}
		if why != "" {
			errs = append(errs, fmt.Errorf("%s was assigned and cannot be used: %s: "+
				"delete the pod, so that it gets another", what(n), why))
		}
	}
	return names, errors.Join(errs...)
}

func what(n gpu.Name) string {
	if n.Slice != "" {
		return fmt.Sprintf("MIG slice %s of GPU %s", n.Slice, n.GPU)
	}
	return "GPU " + n.GPU
}

// whyNot says why the GPU or slice could not be used at the last look. What is
// there can be used, also if it is not given out any more.
func (d *Device) whyNot(n gpu.Name) string {
	if why := d.health.why(n.GPU, n.Slice); why != "" {
		return why
	}
	for _, m := range d.broken {
		if m.gpu == n.GPU || m.gpu == n.ID() {
			return m.why
		}
	}
	g, s := find(d.gpus, n.ID())
	switch {
	case g == nil:
		if parent, _ := find(d.gpus, n.GPU); parent != nil {
			return "it is there no more: the GPU was partitioned anew, and has " + parent.profiles() + d.failing()
		}
		if len(d.gpus)+len(d.broken) == 0 {
			return "the node has no such GPU: " + d.logged
		}
		return "the node has no such GPU" + d.failing()
	case s == nil && g.mig:
		return "it is in MIG mode now: only its slices can be used"
	}
	return ""
}

// failing says which GPUs and slices fail, of which one that is not found may be one.
func (d *Device) failing() string {
	text := ""
	for _, m := range d.broken {
		text += fmt.Sprintf("; %s: %s", m.gpu, m.why)
	}
	return text
}

// silent returns what NVML says if it does not answer: the last look may have been a minute ago.
func (d *Device) silent(n gpu.Name) string {
	g, s := find(d.gpus, n.ID())
	handle := g.handle
	if s != nil {
		handle = s.handle
	}
	if _, err := memory(handle); err != nil {
		return err.Error()
	}
	return ""
}

// Lost says of what containers hold why they cannot use it any more.
func (d *Device) Lost(held []types.ResourceName) map[types.ResourceName]string {
	lost := map[types.ResourceName]string{}
	for _, r := range held {
		n, ok := gpu.ParseName(r)
		if !ok || n.Leaf == gpu.Bytes {
			continue
		}
		if why := d.whyNot(n); why != "" {
			lost[r] = fmt.Sprintf("%s is lost: %s. Delete the pod, so that it gets another.", what(n), why)
		}
	}
	return lost
}

// described returns the CDI devices' names, nil if specs do not describe all.
func described(ids []string, specs map[string]bool) []string {
	var devices []string
	for _, id := range ids {
		if !specs[id] {
			return nil
		}
		devices = append(devices, cdiKind+"="+id)
	}
	return devices
}

// mps returns what a client of NVIDIA's MPS control daemon needs: the daemon has a directory for each
// resource, which is to have the same path in the container, and shared memory of its own.
func mps(root, kind string, env map[string]string) []device.Mount {
	const inside = "/mps"
	pipe := filepath.Join(string(gpu.KindResource(kind)), "pipe")
	env["CUDA_MPS_PIPE_DIRECTORY"] = filepath.Join(inside, pipe)
	return []device.Mount{
		{ContainerPath: filepath.Join(inside, pipe), HostPath: filepath.Join(root, pipe)},
		{ContainerPath: "/dev/shm", HostPath: filepath.Join(root, "shm")},
	}
}
