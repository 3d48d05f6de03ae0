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
	key   string             // within its location
	count int64              // how much there is of it, or is asked for
}

// location is one member of a group, such as gpu/dev3, or the root.
type location struct {
	id    int
	index string // its own name in the group
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

// entry is a resource on its way into the tree; rest is what remains of its
// name below the location that is being built.
type entry struct {
	rest string
	leaf
}

// parse builds the tree of list's group resources. What has too few elements
// for a group is a leaf of the root, known by its full name.
func parse(list types.ResourceList) tree {
	entries := make([]entry, 0, len(list))
	for name, count := range list {
		if !resource.IsGroupResourceName(name) {
			continue
		}
		rest, ok := strings.CutPrefix(string(name), types.DeviceGroupPrefix+"/")
		if !ok || strings.Count(rest, "/") < 2 {
			rest = ""
		}
		entries = append(entries, entry{rest, leaf{name: name, count: count}})
	}
	// Sorted once, here, so that nothing below depends on the map's order.
	slices.SortFunc(entries, func(a, b entry) int { return cmp.Compare(a.name, b.name) })
	for i := range entries {
		if entries[i].rest == "" {
			entries[i].key = string(entries[i].name)
		}
	}
	t := tree{leaves: make([]leaf, 0, len(entries))}
	t.build(&t.root, entries)
	return t
}

// build fills loc from entries, which have their rest relative to it.
func (t *tree) build(loc *location, entries []entry) {
	loc.id = t.locations
	t.locations++
	loc.lo = len(t.leaves)
	type deeper struct {
		group, index string
		entry
	}
	var below []deeper
	for _, e := range entries {
		group, tail, ok1 := strings.Cut(e.rest, "/")
		index, rest, ok2 := strings.Cut(tail, "/")
		if ok1 && ok2 {
			e.rest = rest
			below = append(below, deeper{group, index, e})
			continue
		}
		if e.key == "" {
			e.key = e.rest
		}
		t.leaves = append(t.leaves, e.leaf)
	}
	loc.own = len(t.leaves)
	slices.SortFunc(t.leaves[loc.lo:loc.own], func(a, b leaf) int { return cmp.Compare(a.key, b.key) })

	slices.SortStableFunc(below, func(a, b deeper) int {
		return cmp.Or(cmp.Compare(a.group, b.group), cmp.Compare(a.index, b.index))
	})
	for i := 0; i < len(below); {
		first := below[i]
		if n := len(loc.groups); n == 0 || loc.groups[n-1].name != first.group {
			loc.groups = append(loc.groups, members{name: first.group})
		}
		var inside []entry
		for ; i < len(below) && below[i].group == first.group && below[i].index == first.index; i++ {
			inside = append(inside, below[i].entry)
		}
		g := &loc.groups[len(loc.groups)-1]
		child := location{index: first.index}
		t.build(&child, inside)
		g.locations = append(g.locations, child)
	}
	loc.hi = len(t.leaves)
}

// find returns the leaf with the key in loc itself, or -1.
func (t *tree) find(loc *location, key string) int {
	i, ok := slices.BinarySearchFunc(t.leaves[loc.lo:loc.own], key, func(l leaf, key string) int {
		return cmp.Compare(l.key, key)
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
