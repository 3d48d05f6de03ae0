package nvidiagpu

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kubeslot/kubeslot/plugins/nvidiagpu/gpu"
	"github.com/kubeslot/kubeslot/types"
)

// givenNode is a node that says it has what the lines say:
//
//	0/1 2: gpu                            GPU 2, in NUMA node 0 and its clique 1
//	0/1 2: gpu.shared=4                   four replicas of it
//	0/1 2: slices mig-1g.10gb gpu=2 …     its slices, each likewise
//	fail-above-one gpu.shared             a container gets one of the kind
//
// A GPU has 80 bytes of memory, a slice 10.
func givenNode(t *testing.T, input string) *types.NodeInfo {
	info := types.NewNodeInfo()
	for line := range strings.Lines(input) {
		words := strings.Fields(line)
		if words[0] == "fail-above-one" {
			info.Allocatable[gpu.FailAboveOne(words[1])] = 1
			continue
		}
		g := gpu.GPU{UUID: strings.TrimSuffix(words[1], ":"), Memory: 80}
		g.Node, g.Clique, _ = strings.Cut(words[0], "/")
		kinds := words[2:]
		for i, w := range kinds {
			if w == "slices" {
				continue
			}
			if kinds[0] == "slices" {
				g.Slice, g.Memory = fmt.Sprintf("%s.%d", g.UUID, i-1), 10
			}
			kind, count, _ := strings.Cut(w, "=")
			g.Kind = kind
			g.Count, _ = strconv.ParseInt(cmp.Or(count, "1"), 10, 64)
			gpu.Write(info.Allocatable, []gpu.GPU{g})
		}
	}
	return info
}

// given returns what a container got, by UUID, each with how much of it if it is
// more than one.
func given(c types.ContainerInfo) string {
	var words []string
	for want, from := range c.AllocateFrom {
		name, ok := gpu.ParseName(from)
		if !ok || name.Leaf == gpu.Bytes {
			continue
		}
		word := cmp.Or(name.Slice, name.GPU)
		if n := c.DevRequests[want]; n > 1 {
			word += fmt.Sprintf("x%d", n)
		}
		words = append(words, word)
	}
	if words == nil {
		return "none"
	}
	slices.Sort(words)
	return strings.Join(words, " ")
}
