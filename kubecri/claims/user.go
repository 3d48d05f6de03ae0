package claims

import "github.com/kubeslot/kubeslot/types/slot"

// Pod identifies a pod. Two pods of one name, one after the other, have
// different UIDs.
type Pod struct {
	Namespace, Name, UID string
}

// String returns namespace/name.
func (p Pod) String() string { return p.Namespace + "/" + p.Name }

// user is a container and the slots that it uses. Its id is "" while it is
// being created.
type user struct {
	id      string
	sandbox string
	pod     Pod
	name    string
	slots   map[slot.Name]Use
	born    uint64 // event at which it was entered or got its id
	// stopping is true while this process stops it, and ended once it has, or was found ended: it does
	// not run, cannot start again, and uses no slot (stop.go).
	stopping, ended bool
}
