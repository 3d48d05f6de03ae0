package ledger

import (
	"slices"
	"strings"
)

// counts are numbers of nodes, sorted by node; none is 0. Most devices have one or
// none, for which a map takes ten times the memory.
type counts []count

type count struct {
	node string
	n    int
}

func (c counts) find(node string) (int, bool) {
	return slices.BinarySearchFunc(c, node, func(at count, node string) int { return strings.Compare(at.node, node) })
}

func (c counts) of(node string) int {
	if i, found := c.find(node); found {
		return c[i].n
	}
	return 0
}

// add reports what the node's number is now.
func (c *counts) add(node string, n int) int {
	i, found := c.find(node)
	if !found {
		*c = slices.Insert(*c, i, count{node: node})
	}
	now := (*c)[i].n + n
	if (*c)[i].n = now; now == 0 {
		*c = slices.Delete(*c, i, i+1)
	}
	return now
}
