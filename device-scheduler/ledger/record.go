package ledger

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/slot"
)

// record is what decisions need of an Instance. There may be tens of thousands, and
// so it keeps nothing that the object was decoded into: one name of it would keep
// the memory around that name.
type record struct {
	name, uid, version string
	kind               *kind
	owner              *owner
	at                 int // in the owner's instances
	capacity           int
	nodes              []string // sorted
	usage              []usage
}

// usage is the entry of a slot in deviceUsage.
type usage struct {
	index int
	claim string // "" is free
}

type instanceKey struct{ namespace, name string }

// enter makes a record of an Instance that the owner did not have.
func (o *owner) enter(k *kind, in *akriv0.Instance) *record {
	r := &record{name: strings.Clone(in.Name), uid: strings.Clone(string(in.UID)), kind: k, owner: o, at: len(o.instances)}
	o.instances = append(o.instances, r)
	return r
}

// leave removes a record.
func (o *owner) leave(r *record) {
	last := len(o.instances) - 1
	o.instances[r.at] = o.instances[last]
	o.instances[r.at].at = r.at
	o.instances[last] = nil
	o.instances = o.instances[:last]
}

// update reads the Instance. It reports whether others may reach the device now, or
// its capacity is another: most updates are claims, and change neither.
func (r *record) update(in *akriv0.Instance) (moved bool) {
	if !slices.Equal(in.Spec.Nodes, r.nodes) {
		if nodes := sorted(in.Spec.Nodes); !slices.Equal(nodes, r.nodes) {
			for i := range nodes {
				nodes[i] = strings.Clone(nodes[i])
			}
			r.nodes, moved = nodes, true
		}
	}
	moved = moved || int(in.Spec.Capacity) != r.capacity
	r.version, r.capacity = strings.Clone(in.ResourceVersion), int(in.Spec.Capacity)
	r.usage = slices.Grow(r.usage[:0], len(in.Spec.DeviceUsage))
	for name, claim := range in.Spec.DeviceUsage {
		n, err := slot.Parse(name)
		if err == nil && n.Instance == in.Name {
			r.usage = append(r.usage, usage{n.Index, strings.Clone(claim)})
		}
	}
	return moved
}

// instance is the Instance again, without what decisions do not need.
func (r *record) instance() *akriv0.Instance {
	in := &akriv0.Instance{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.owner.namespace, Name: r.name, UID: types.UID(r.uid), ResourceVersion: r.version},
		Spec:       akriv0.InstanceSpec{ConfigurationName: r.kind.name, Capacity: int32(r.capacity), Nodes: r.nodes},
	}
	if len(r.usage) > 0 {
		in.Spec.DeviceUsage = make(map[string]string, len(r.usage))
	}
	for _, u := range r.usage {
		in.Spec.DeviceUsage[slot.Name{Instance: r.name, Index: u.index}.String()] = u.claim
	}
	return in
}

// Known returns the UID and the resource version of the Instance as last set; ""
// when there is none.
func (l *Ledger) Known(namespace, name string) (uid, version string) {
	if r := l.instances[instanceKey{namespace, name}]; r != nil {
		return r.uid, r.version
	}
	return "", ""
}

// EachInstance calls visit with each Instance that was set, in no order.
func (l *Ledger) EachInstance(visit func(namespace, name string)) {
	for key := range l.instances {
		visit(key.namespace, key.name)
	}
}
