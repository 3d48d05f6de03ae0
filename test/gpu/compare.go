package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/gpu"
)

// nvmlGPU is a GPU as go-nvml reads it in this process.
type nvmlGPU struct {
	uuid, bus string
	minor     int
	mig       bool
}

// differences are sentences that each name a GPU and what is different.
type differences []string

func (d *differences) add(format string, args ...any) { *d = append(*d, fmt.Sprintf(format, args...)) }

// compareInventory compares the GPUs that the plugin advertises with those of nvidia-smi: as whole ones if they are not
// in MIG mode, else by their slices.
func compareInventory(advertised []gpu.GPU, smi []smiGPU) (d differences) {
	whole, parts := map[string]int{}, map[string]int{}
	for _, g := range advertised {
		if g.Slice == "" {
			whole[g.UUID]++
		} else {
			parts[g.UUID]++
		}
	}
	for _, s := range smi {
		want := 1
		if s.MIG == "Enabled" {
			want = 0
		}
		if whole[s.UUID] != want || parts[s.UUID] != len(s.Slices) {
			const text = "%s with MIG mode %s is advertised %d times, with %d slices; nvidia-smi has %d slices"
			d.add(text, s.UUID, s.MIG, whole[s.UUID], parts[s.UUID], len(s.Slices))
		}
	}
	for _, g := range advertised {
		if !slices.ContainsFunc(smi, func(s smiGPU) bool { return s.UUID == g.UUID }) {
			d.add("%s is advertised, and nvidia-smi does not have it", g.ID())
		}
	}
	return d
}

// near allows for 1 MiB, since nvidia-smi rounds.
func near(a, b int64) bool { return max(a-b, b-a) <= 1 }

// compareMemory compares the memory of whole GPUs, and of slices.
func compareMemory(advertised []gpu.GPU, smi []smiGPU) (d differences) {
	for _, s := range smi {
		want := []string{s.Memory}
		if s.MIG == "Enabled" {
			want = nil
			for _, part := range s.Slices {
				want = append(want, part.Memory)
			}
		}
		compareAmounts(&d, s.UUID, amounts(advertised, s.UUID), want)
	}
	return d
}

// amounts are the MiB of what is advertised of a GPU, sorted.
func amounts(advertised []gpu.GPU, uuid string) []int64 {
	var mib []int64
	for _, g := range advertised {
		if g.UUID == uuid {
			mib = append(mib, g.Memory>>20)
		}
	}
	slices.Sort(mib)
	return mib
}

func compareAmounts(d *differences, uuid string, got []int64, texts []string) {
	var want []int64
	for _, text := range texts {
		n, err := mebibytes(text)
		if err != nil {
			d.add("%s: %v", uuid, err)
			return
		}
		want = append(want, n)
	}
	slices.Sort(want)
	if len(got) == len(want) && !slices.EqualFunc(got, want, near) { // other numbers are of compareInventory
		d.add("%s: %d MiB are advertised, and nvidia-smi says %d", uuid, got, want)
	}
}

// compareSlices compares the MIG slices that are advertised, by UUID and profile. A resource's name has "." for the
// profile's "+".
func compareSlices(advertised []gpu.GPU, smi []smiDevice) (d differences) {
	kinds := map[string]string{}
	for _, g := range advertised {
		if g.Slice != "" {
			kinds[g.Slice] = g.Kind
		}
	}
	for _, s := range smi {
		if want := "mig-" + strings.ReplaceAll(s.profile, "+", "."); kinds[s.uuid] != want {
			d.add("%s is advertised as %q, want %q", s.uuid, kinds[s.uuid], want)
		}
		delete(kinds, s.uuid)
	}
	for _, uuid := range slices.Sorted(maps.Keys(kinds)) {
		d.add("%s is advertised, and nvidia-smi does not have it", uuid)
	}
	return d
}

// compareLabels compares the Node's labels with what nvidia-smi says of most GPUs.
func compareLabels(labels map[string]string, smi smiLog) (d differences) {
	value := func(key string) string { return labels["gpu.kubeslot.io/"+key] }
	is := func(key, want string) {
		if got := value(key); got != want {
			d.add("%s is %q, and for nvidia-smi %q", key, got, want)
		}
	}
	is("cuda.driver-version.full", smi.Driver)
	is("cuda.runtime-version.full", smi.CUDA)
	count, memory := 0, false
	for _, g := range smi.GPUs {
		if strings.Join(strings.Fields(g.Product), "-") != value("product") {
			continue
		}
		count++
		want, err := mebibytes(g.Memory)
		got, err2 := strconv.ParseInt(value("memory"), 10, 64)
		memory = memory || err == nil && err2 == nil && near(got, want)
	}
	is("count", fmt.Sprint(count))
	if count == 0 || !memory {
		d.add("product is %q with memory %q, and nvidia-smi has no such GPU", value("product"), value("memory"))
	}
	return d
}

// compareReadings compares what go-nvml reads with what nvidia-smi reads: both ask the same driver, so that a
// difference is one of go-nvml, or of this program's link to it.
func compareReadings(nvml []nvmlGPU, smi []smiGPU) (addresses, minors, modes differences) {
	if len(nvml) != len(smi) {
		addresses.add("NVML has %d GPUs, and nvidia-smi %d", len(nvml), len(smi))
	}
	for i := range min(len(nvml), len(smi)) {
		n, s := nvml[i], smi[i]
		if n.uuid != s.UUID {
			addresses.add("index %d is %s for NVML, and %s for nvidia-smi", i, n.uuid, s.UUID)
			continue
		}
		if !strings.EqualFold(n.bus, s.Bus) {
			addresses.add("%s: NVML says %s, and nvidia-smi %s", s.UUID, n.bus, s.Bus)
		}
		if s.Minor != fmt.Sprint(n.minor) {
			minors.add("%s: NVML says %d, and nvidia-smi %s", s.UUID, n.minor, s.Minor)
		}
		if n.mig != (s.MIG == "Enabled") {
			modes.add("%s: NVML says %v, and nvidia-smi %s", s.UUID, n.mig, s.MIG)
		}
	}
	return addresses, minors, modes
}

// compareGroups compares the groups that the plugin advertises with those of the connections that nvidia-smi says. It
// compares which GPUs are together; how the groups are numbered is the plugin's affair.
func compareGroups(advertised []gpu.GPU, smi []smiGPU, links [][]gpu.Link) (d differences) {
	if len(smi) != len(links) {
		d.add("nvidia-smi -q has %d GPUs, and topo %d", len(smi), len(links))
		return d
	}
	var gpus []gpu.GPU
	var index []int // in links
	for i, s := range smi {
		for _, g := range advertised {
			if g.UUID == s.UUID {
				gpus, index = append(gpus, g), append(index, i)
				break
			}
		}
	}
	nodes, cliques := gpu.Group(len(gpus), func(i, j int) gpu.Link { return links[index[i]][index[j]] })
	for i, a := range gpus {
		for j, b := range gpus[:i] {
			if got, want := a.Node == b.Node, nodes[i] == nodes[j]; got != want {
				d.add("%s and %s are advertised in one NUMA node: %v, by nvidia-smi: %v", b.UUID, a.UUID, got, want)
			}
			if got, want := a.Clique == b.Clique, cliques[i] == cliques[j]; got != want {
				d.add("%s and %s are advertised in one clique: %v, by nvidia-smi: %v", b.UUID, a.UUID, got, want)
			}
		}
	}
	return d
}
