package group

import (
	"cmp"
	"slices"
	"strings"

	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/resource"
)

// tree is a list of group resources by level. The leaves of a location, at all
// depths, are next to each other, its own ones first.
type tree struct {
	leaves    []leaf
	locations int // how many there are; their ids count from 0
	root      location
}

// leaf is one resource.
type leaf struct {
	name  types.ResourceName // in full
	key   string             // within its location; in the root, the same
	count int64              // how much there is of it, or is asked for
}

// location is one member of a group, such as gpu/dev3, or the root.
type location struct {
	id int
	// Its leaves are [lo, hi) of the tree's, those that are in no deeper group
	// [lo, own), sorted by key.
	lo, own, hi int
	groups      []members // sorted by name
}

// members are the locations of one group, sorted by index.
type members struct {
	name      string
	locations []location
}

// parse builds the tree of list's group resources.
func parse(list types.ResourceList) tree {
	sorted := make([]leaf, 0, len(list))
	for name, count := range list {
		if resource.IsGroupResourceName(name) {
			sorted = append(sorted, leaf{name: name, count: count})
		}
	}
	slices.SortFunc(sorted, func(a, b leaf) int { return compare(string(a.name), string(b.name)) })
	t := tree{leaves: make([]leaf, 0, len(sorted))}
	t.build(&t.root, sorted, 0)
	return t
}

// compare orders names by their elements: a slash comes before all else.
func compare(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		switch {
		case a[i] == b[i]:
		case a[i] == '/':
			return -1
		case b[i] == '/':
			return 1
		default:
			return cmp.Compare(a[i], b[i])
		}
	}
	return cmp.Compare(len(a), len(b))
}

// build fills loc from leaves, sorted, of whose names the first skip bytes are
// those of loc. 0 means the root. Sorting put the leaves of a location next to
// each other.
func (t *tree) build(loc *location, leaves []leaf, skip int) {
	loc.id = t.locations
	t.locations++
	loc.lo = len(t.leaves)
	for _, l := range leaves {
		if _, _, ok := cutGroup(l.name, skip); !ok {
			l.key = string(l.name[skip:])
			t.leaves = append(t.leaves, l)
		}
	}
	loc.own = len(t.leaves)
	for i := 0; i < len(leaves); {
		group, end, ok := cutGroup(leaves[i].name, skip)
		if !ok {
			i++
			continue
		}
		// All names are equal up to skip: comparing from there keeps the whole
		// linear in what a user wrote, however deep.
		start, prefix := i, string(leaves[i].name[skip:end])
		for i < len(leaves) && strings.HasPrefix(string(leaves[i].name[skip:]), prefix) {
			i++
		}
		if n := len(loc.groups); n == 0 || loc.groups[n-1].name != group {
			loc.groups = append(loc.groups, members{name: group})
		}
		g := &loc.groups[len(loc.groups)-1]
		g.locations = append(g.locations, location{})
		t.build(&g.locations[len(g.locations)-1], leaves[start:i], end)
	}
	loc.hi = len(t.leaves)
}

// cutGroup splits "<group>/<index>/<rest>" off the name after the bytes to skip,
// and returns where the rest begins. What has fewer elements is in no group, and
// neither is what only begins like a group resource: "resource/groups/a/b/c".
func cutGroup(name types.ResourceName, skip int) (group string, rest int, ok bool) {
	if skip == 0 {
		if skip = len(types.DeviceGroupPrefix + "/"); len(name) < skip || name[skip-1] != '/' {
			return "", 0, false
		}
	}
	group, tail, _ := strings.Cut(string(name[skip:]), "/")
	index, _, ok := strings.Cut(tail, "/")
	return group, skip + len(group) + len(index) + 2, ok
}

// find returns the leaf with the key in loc itself, or -1.
func (t *tree) find(loc *location, key string) int {
	i, ok := slices.BinarySearchFunc(t.leaves[loc.lo:loc.own], key, func(l leaf, key string) int {
		return compare(l.key, key)
	})
	if !ok {
		return -1
	}
	return loc.lo + i
}

// members returns the locations of loc's group with the name.
func (loc *location) members(name string) []location {
	i, ok := slices.BinarySearchFunc(loc.groups, name, func(g members, name string) int {
		return cmp.Compare(g.name, name)
	})
	if !ok {
		return nil
	}
	return loc.groups[i].locations
}
