package assignment

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/slot"
)

// ResourcePrefix starts the name of every configuration- and instance-level
// resource; the rest is the Configuration's or the Instance's name.
const ResourcePrefix = "akri.sh/"

// Grant is one slot given to a container for one unit of a request.
type Grant struct {
	// Resource is the requested name without ResourcePrefix: a Configuration's
	// or an Instance's.
	Resource string
	// Ordinal counts the units of the request, from 0.
	Ordinal int
	Slot    slot.Name
}

// InstanceLevel reports whether the container asked for this very Instance.
func (g Grant) InstanceLevel() bool { return g.Resource == g.Slot.Instance }

// Set records grants, and the requests that they satisfy, in a container.
func Set(c *types.ContainerInfo, grants []Grant) {
	requests := make(types.ResourceList, len(grants))
	from := make(types.ResourceLocation, len(grants))
	for name, n := range c.Requests { // what other plugins handle stays
		requests[name] = n
	}
	for _, g := range grants {
		name := types.ResourceName(ResourcePrefix + g.Resource)
		requests[name] = max(requests[name], int64(g.Ordinal)+1)
		from[name+types.ResourceName("/"+strconv.Itoa(g.Ordinal))] = types.ResourceName(g.Slot.String())
	}
	c.Requests, c.AllocateFrom = requests, from
}

// Grants returns the slots in a container's AllocateFrom, ordered by resource
// and ordinal. Entries of other plugins are passed over.
func Grants(c *types.ContainerInfo) ([]Grant, error) {
	var grants []Grant
	for key, value := range c.AllocateFrom {
		rest, ours := strings.CutPrefix(string(key), ResourcePrefix)
		if !ours {
			continue
		}
		resource, ordinal, _ := strings.Cut(rest, "/")
		n, err := strconv.ParseUint(ordinal, 10, 16)
		if resource == "" || err != nil {
			return nil, fmt.Errorf("annotation %s: allocatefrom %q: want %s<configuration or instance>/<ordinal>",
				Annotation, key, ResourcePrefix)
		}
		s, err := slot.Parse(string(value))
		if err != nil {
			return nil, fmt.Errorf("annotation %s: allocatefrom %q: %w", Annotation, key, err)
		}
		grants = append(grants, Grant{Resource: resource, Ordinal: int(n), Slot: s})
	}
	slices.SortFunc(grants, func(a, b Grant) int {
		return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Ordinal, b.Ordinal),
			cmp.Compare(a.Slot.String(), b.Slot.String()))
	})
	return grants, nil
}
