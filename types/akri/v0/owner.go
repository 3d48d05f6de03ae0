package v0

import (
	"cmp"

	"github.com/kubeslot/kubeslot/types/slot"
)

// Who has the resource name akri.sh/<name>. Resource names have no namespace, and one
// name can be asked for by several:
//
//   - Configurations of that name, in different namespaces;
//   - the Configuration whose Instances are named so: `cam-8120fe` can be an Instance of
//     the Configuration `cam`.
//
// The oldest has it. A Configuration that does not have its name is not in force: nothing
// is discovered, advertised or given to pods for it. An Instance whose name is an older
// Configuration's is left out.
//
// Which Instances there are does not matter: a Configuration has the names of all that it
// could have. So each component finds the same owner from Configurations alone, in
// whichever order it sees them; no node takes a name away by what it reports; and a name
// does not change hands because a device is plugged in.

// MayOwnName reports whether the Configuration takes part: it exists (is not
// nil) and is not being deleted, which takes its Instances along.
func (c *Configuration) MayOwnName() bool { return c != nil && c.DeletionTimestamp == nil }

// CompareOwners orders Configurations that ask for one name, for slices.SortFunc: the
// oldest that may own it first, ties by namespace and name. Those that may not, nil among
// them, come last and are equal.
func CompareOwners(a, b *Configuration) int {
	switch mayA, mayB := a.MayOwnName(), b.MayOwnName(); {
	case mayA && mayB:
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	case mayA:
		return -1
	case mayB:
		return 1
	}
	return 0
}

// Oldest returns the oldest Configuration of a name that may own it; nil for none. It is
// a view of some set of Configurations.
type Oldest func(name string) *Configuration

// OldestOf is the view of a list, as it is now. Safe for concurrent use.
func OldestOf(all []*Configuration) Oldest {
	oldest := make(map[string]*Configuration, len(all))
	for _, c := range all {
		if c.MayOwnName() && CompareOwners(c, oldest[c.Name]) < 0 {
			oldest[c.Name] = c
		}
	}
	return func(name string) *Configuration { return oldest[name] }
}

// ResourceOwner returns the Configuration that has the resource name: one of that very
// name, whose any device it asks for, or one of another name, whose Instance it asks for.
// nil when neither is there.
func (o Oldest) ResourceOwner(name string) *Configuration {
	own := o(name)
	base, hash := slot.SplitInstance(name)
	if !slot.IsHash(hash) {
		return own
	}
	if of := o.InForce(base); of != nil && len(hash) == of.Spec.HashDigits() && CompareOwners(of, own) < 0 {
		return of
	}
	return own
}

// InForce returns the Configuration of the name that has its name; nil when none does.
func (o Oldest) InForce(name string) *Configuration {
	if own := o(name); own != nil && o.ResourceOwner(name) == own {
		return own
	}
	return nil
}

// MayNameInstanceOf reports whether the name may be that of an Instance of a Configuration
// named base: then who has the one depends on who has the other.
func MayNameInstanceOf(base, name string) bool {
	of, hash := slot.SplitInstance(name)
	return of == base && slot.IsHash(hash)
}
