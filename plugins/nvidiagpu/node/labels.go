package node

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/config"
	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/gpu"
)

// families are what GPU feature discovery calls architectures, by NVML's numbers.
var families = []string{
	nvml.DEVICE_ARCH_KEPLER: "kepler", "maxwell", "pascal", "volta", "turing",
	"ampere", "ada-lovelace", "hopper", "blackwell",
}

// machine is what labels say.
type machine struct {
	driver string // as 550.54.15
	cuda   int    // that the driver can do: 1000 × major + 10 × minor
	gpus   []found
	models []model // of the GPUs
}

type model struct {
	product, family string
	major, minor    int // compute capability
}

// configure takes the configuration of a Node with the label. If that cannot be, the one before
// stays, and UpdateNodeInfo returns the error.
func (d *Device) configure(label string) error {
	c, warnings, err := d.environment.Load(label)
	if d.misconfig = err; err != nil {
		return err
	}
	if d.config = c; !slices.Equal(warnings, d.warnings) {
		d.warnings = warnings
		d.warn(warnings)
	}
	return nil
}

func (d *Device) warn(warnings []string) {
	for _, w := range warnings {
		klog.InfoS("NVIDIA GPUs", "plugin", d.GetName(), "warning", w)
	}
}

// NodeLabels takes the Node's configuration, which may be by its label, and says what GPUs it has.
func (d *Device) NodeLabels(node map[string]string) (map[string]string, error) {
	_ = d.configure(node[config.Label]) // see UpdateNodeInfo
	err := d.look()
	if d.looked = err == nil; !d.looked {
		return nil, err
	}
	labels := map[string]string{}
	for name, value := range d.machine().labels(d.config) {
		if d.environment.NVIDIALabels {
			labels["nvidia.com/"+name] = value
		} else {
			labels["gpu.kubeslot.io/"+strings.TrimPrefix(name, "gpu.")] = value
		}
	}
	return labels, nil
}

// machine asks NVML. What it does not answer is not in the labels.
func (d *Device) machine() machine {
	m := machine{gpus: d.gpus}
	if len(d.gpus) == 0 {
		return m
	}
	m.driver, _ = d.lib.SystemGetDriverVersion()
	m.cuda, _ = d.lib.SystemGetCudaDriverVersion()
	for _, g := range d.gpus {
		var is model
		is.product, _ = g.handle.GetName()
		is.major, is.minor, _ = g.handle.GetCudaComputeCapability()
		if arch, code := g.handle.GetArchitecture(); code == nvml.SUCCESS && int(arch) < len(families) {
			is.family = families[arch]
		}
		m.models = append(m.models, is)
	}
	return m
}

// labels returns those of GPU feature discovery, without nvidia.com/. Where there are several
// products they say what the most GPUs are.
func (m machine) labels(c *config.Config) map[string]string {
	if len(m.gpus) == 0 {
		return nil
	}
	of, count := m.most()
	share := c.Share(gpu.DefaultKind)
	product, memory := []string{m.models[of].product}, m.gpus[of].Memory
	replicas, strategy := share.Replicas, share.Strategy()
	capable := slices.ContainsFunc(m.gpus, func(g found) bool { return g.capable })
	partitioned := slices.ContainsFunc(m.gpus, func(g found) bool { return g.mig })
	switch {
	case c.MIGStrategy == config.MIGSingle && partitioned && notAlike(m.gpus) != nil:
		product, count, memory, replicas, strategy = append(product, "MIG", "INVALID"), 0, 0, 0, ""
	case c.MIGStrategy == config.MIGSingle && partitioned:
		s := m.gpus[of].slices[0]
		product, count, memory = append(product, "MIG", s.profile), 0, s.memory
		for _, g := range m.gpus {
			count += len(g.slices)
		}
	case m.gpus[of].mig: // all of this product are, and their slices are not called gpu
		replicas, strategy = 0, config.ShareNone
	}
	if replicas > 1 && share.Kind == gpu.DefaultKind {
		product = append(product, "SHARED")
	}
	const mib = 1 << 20
	labels := map[string]string{
		"gpu.product":          strings.Join(product, " "),
		"gpu.count":            strconv.Itoa(count),
		"gpu.replicas":         fmt.Sprint(replicas),
		"gpu.sharing-strategy": strategy,
		"gpu.memory":           fmt.Sprint(memory / mib),
		"gpu.family":           m.models[of].family,
		"gpu.compute.major":    strconv.Itoa(m.models[of].major),
		"gpu.compute.minor":    strconv.Itoa(m.models[of].minor),
		"mig.capable":          strconv.FormatBool(capable),
		"mig.strategy":         c.MIGStrategy,
		"mps.capable":          strconv.FormatBool(share.MPS && !partitioned),
	}
	m.versions(labels)
	for key, value := range labels {
		if labels[key] = labelValue(value); labels[key] == "" {
			delete(labels, key)
		}
	}
	return labels
}

// versions adds those of driver and CUDA.
func (m machine) versions(labels map[string]string) {
	words := append(strings.SplitN(m.driver, ".", 3), "", "")
	labels["cuda.driver-version.full"] = m.driver
	for i, part := range []string{"major", "minor", "revision"} {
		labels["cuda.driver-version."+part] = words[i]
	}
	if m.cuda > 0 {
		major, minor := m.cuda/1000, m.cuda%1000/10
		labels["cuda.runtime-version.full"] = fmt.Sprintf("%d.%d", major, minor)
		labels["cuda.runtime-version.major"] = strconv.Itoa(major)
		labels["cuda.runtime-version.minor"] = strconv.Itoa(minor)
	}
}

// most returns a GPU of the product that the most are, one that is not in MIG mode if there is
// such, and how many there are.
func (m machine) most() (of, count int) {
	counts := map[string]int{}
	for _, is := range m.models {
		counts[is.product]++
	}
	for i, is := range m.models {
		better := counts[is.product] > count
		same := is.product == m.models[of].product
		if better || same && m.gpus[of].mig && !m.gpus[i].mig {
			of, count = i, counts[is.product]
		}
	}
	return of, count
}

var notInLabels = regexp.MustCompile(`[^A-Za-z0-9-_. ]`)

// labelValue is what GPU feature discovery makes of a text, and at most as long as a label's value may be.
func labelValue(text string) string {
	text = strings.Join(strings.Fields(notInLabels.ReplaceAllString(text, "")), "-")
	return strings.Trim(text[:min(len(text), validation.LabelValueMaxLength)], "-_.")
}
