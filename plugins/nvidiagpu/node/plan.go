package node

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/config"
	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/gpu"
)

// unit is what is given out: a GPU, or a slice of it.
type unit struct {
	gpu.GPU
	share config.Share
}

// plan returns what is given out of the GPUs, and which of them are not.
func plan(c *config.Config, gpus []found) ([]unit, []missing) {
	var units []unit
	var out []missing
	add := func(g gpu.GPU, kind string) {
		share := c.Share(kind)
		g.Kind, g.Count = share.Kind, share.Replicas
		units = append(units, unit{g, share})
	}
	var unlike map[string]string
	if c.MIGStrategy == config.MIGSingle {
		unlike = notAlike(gpus)
	}
	for _, g := range gpus {
		why := unlike[g.UUID]
		switch {
		case why != "":
		case !g.mig:
			add(g.GPU, gpu.DefaultKind)
		case c.MIGStrategy != config.MIGSingle && c.MIGStrategy != config.MIGMixed:
			why = "it is in MIG mode, and the MIG strategy is none: " +
				"set it to mixed or single, or switch the GPU's MIG mode off"
		case len(g.slices) == 0:
			why = "it is in MIG mode and has no slices: create some, as with nvidia-smi mig"
		}
		if why != "" {
			out = append(out, missing{g.UUID, why})
			continue
		}
		for _, s := range g.slices {
			part, kind := g.GPU, "mig-"+s.profile
			part.Slice, part.Memory = s.uuid, s.memory
			if c.MIGStrategy == config.MIGSingle {
				kind = gpu.DefaultKind
			}
			add(part, kind)
		}
	}
	return units, out
}

// notAlike returns, by UUID, why no GPU is given out: with the MIG strategy single all are to be
// partitioned alike, or none.
func notAlike(gpus []found) map[string]string {
	like, mig := "", false
	for _, g := range gpus {
		if mig = mig || g.mig; like == "" && len(g.slices) > 0 {
			like = g.slices[0].profile
		}
	}
	why := map[string]string{}
	for _, g := range gpus {
		switch {
		case !g.mig:
			why[g.UUID] = "it is not in MIG mode"
		case len(g.slices) == 0:
			why[g.UUID] = "it has no slices"
		case slices.ContainsFunc(g.slices, func(s slice) bool { return s.profile != like }):
			why[g.UUID] = "it has " + g.profiles()
		}
	}
	if !mig || len(why) == 0 {
		return nil
	}
	for _, g := range gpus {
		if why[g.UUID] == "" {
			why[g.UUID] = "others are not partitioned into " + like
		}
		why[g.UUID] += ": with the MIG strategy single all GPUs are to be partitioned alike"
	}
	return why
}

// profiles says what slices the GPU has, and where.
func (g found) profiles() string {
	var words []string
	for _, s := range g.slices {
		words = append(words, fmt.Sprintf("%s@%d", s.profile, s.start))
	}
	if words == nil {
		return "no slices"
	}
	return "slices " + strings.Join(words, " ")
}
