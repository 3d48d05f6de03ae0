package v0

import "cmp"

// Names of Configurations are unique in the cluster in effect, because the
// resources that they become have no namespace. Of several of one name one owns
// it: only its devices are discovered, advertised and given to pods. These two
// functions are that rule, for every component that has to apply it.

// MayOwnName reports whether the Configuration takes part: it exists (is not
// nil) and is not being deleted, which takes its Instances along.
func (c *Configuration) MayOwnName() bool { return c != nil && c.DeletionTimestamp == nil }

// CompareOwners orders Configurations of one name, for slices.SortFunc: the owner
// first, which is the oldest that may own it, ties by namespace. Those that may
// not, nil among them, come last and are equal.
func CompareOwners(a, b *Configuration) int {
	switch mayA, mayB := a.MayOwnName(), b.MayOwnName(); {
	case mayA && mayB:
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace))
	case mayA:
		return -1
	case mayB:
		return 1
	}
	return 0
}
