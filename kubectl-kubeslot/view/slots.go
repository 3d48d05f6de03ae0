package view

import (
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// Slots returns the slots of all Instances, by Configuration and name. The slice is the
// caller's.
func (v *View) Slots() []Slot { return slices.Clone(v.listed()) }

// Taken returns those of Slots that are not free. They are not to be changed.
func (v *View) Taken() []Slot { return v.slots().all }

// listSlots makes what Slots returns.
func (v *View) listSlots() []Slot {
	var all []Slot
	for _, name := range slices.Sorted(maps.Keys(v.of)) {
		for _, in := range v.of[name] {
			taken := v.taken(in)
			for index := range v.capacity(in) {
				s := v.freeSlot(in, slot.Name{Instance: in.Name, Index: index})
				if len(taken) > 0 && taken[0].Name == s.Name {
					s, taken = taken[0], taken[1:]
				}
				all = append(all, s)
			}
			all = append(all, taken...)
		}
	}
	return append(all, v.slots().withoutInstance...)
}

// indexSlots makes the index that slots returns.
func (v *View) indexSlots() *slotIndex {
	x := slotIndex{ofInstance: make(map[string][]Slot, len(v.instances)), ofPod: map[string][]Slot{}}
	for _, name := range slices.Sorted(maps.Keys(v.of)) {
		for _, in := range v.of[name] {
			from := len(x.all)
			x.all = v.appendTaken(x.all, in)
			x.ofInstance[in.Name] = x.all[from:len(x.all):len(x.all)]
		}
	}
	from := len(x.all)
	for _, name := range slices.Sorted(maps.Keys(v.claims)) {
		if s, ok := v.slotWithoutInstance(name); ok {
			x.all = append(x.all, s)
		}
	}
	x.withoutInstance = x.all[from:]
	for i := range x.all {
		for _, uid := range v.userUIDs(&x.all[i]) {
			x.ofPod[uid] = append(x.ofPod[uid], x.all[i])
		}
	}
	return &x
}

// slotWithoutInstance is a slot that is held of a device whose Instance is gone, as when
// its Configuration was deleted.
func (v *View) slotWithoutInstance(claim string) (Slot, bool) {
	name, err := slot.Parse(claim)
	if err != nil || v.instances[name.Instance] != nil {
		return Slot{}, false
	}
	c, in := v.claims[claim], &akriv0.Instance{ObjectMeta: metav1.ObjectMeta{Name: name.Instance}}
	in.Spec.ConfigurationName, _ = slot.SplitInstance(name.Instance)
	switch {
	case c.Spec.Pod != nil:
		in.Namespace = c.Spec.Pod.Namespace
	case c.Spec.ResourceClaim != nil:
		in.Namespace = c.Spec.ResourceClaim.Namespace
	}
	return v.slot(in, name), true
}

// userUIDs are the pods that have the slot.
func (v *View) userUIDs(s *Slot) (uids []string) {
	users := []v1alpha1.PodReference{{UID: types.UID(s.PodUID)}}
	if c := v.claims[s.Name]; c != nil {
		users = v.usersOf(c)
	}
	for _, user := range users {
		if user.UID != "" {
			uids = append(uids, string(user.UID))
		}
	}
	return uids
}

// taken are the Instance's slots that somebody has, by index: also those beyond the capacity. They are not to be
// changed.
func (v *View) taken(in *akriv0.Instance) []Slot { return v.slots().ofInstance[in.Name] }

func (v *View) appendTaken(all []Slot, in *akriv0.Instance) []Slot {
	count := v.capacity(in)
	for _, index := range slices.Sorted(maps.Keys(v.used[in.Name])) {
		if s := v.slot(in, slot.Name{Instance: in.Name, Index: index}); s.State != Free {
			s.BeyondCapacity = index >= count
			all = append(all, s)
		}
	}
	return all
}

func (v *View) freeSlot(in *akriv0.Instance, name slot.Name) Slot {
	return Slot{Name: name.String(), InstanceNamespace: in.Namespace, Labels: in.Labels, Instance: in.Name,
		Configuration: in.Spec.ConfigurationName, Device: v.deviceID(in), State: Free}
}

func (v *View) slot(in *akriv0.Instance, name slot.Name) Slot {
	s := v.freeSlot(in, name)
	usage, err := slot.ParseUsage(in.Spec.DeviceUsage[s.Name])
	// To a user who may not list claims the Instance says which are held.
	mirrored := v.objects.Claims == nil && err == nil && !usage.Free()
	if c := v.claims[s.Name]; c != nil {
		s.State, s.Node, s.Container, s.Level = Held, c.Spec.NodeName, c.Spec.Container, string(c.Spec.Level)
		s.Since = c.CreationTimestamp.Time
		users := v.usersOf(c)
		if len(users) > 0 {
			s.Namespace, s.Pod, s.PodUID = users[0].Namespace, users[0].Name, string(users[0].UID)
		}
		if of := c.Spec.ResourceClaim; of != nil {
			s.ResourceClaim, s.Users = of.Namespace+"/"+of.Name, userNames(users)
		}
		// An init container leaves its slots to those that follow.
		for _, g := range v.granted[s.Name] {
			if user := g.user(); user != "" && string(g.pod.UID) == s.PodUID {
				s.Container = user
			}
		}
		s.Unreachable = v.releaseOf(c).Waits()
	} else if grants := v.granted[s.Name]; len(grants) > 0 {
		g := grants[0]
		s.State, s.Namespace, s.Pod, s.PodUID = Assigned, g.pod.Namespace, g.pod.Name, string(g.pod.UID)
		s.Container, s.Node = g.containers[0], g.pod.Spec.NodeName
		s.Level, s.Since = level(g.grant.InstanceLevel()), scheduled(g.pod)
		if container := v.without(g); container != "" && g.pod.DeletionTimestamp == nil {
			s.State, s.Container = Missing, container
		}
		if mirrored && usage.Node == s.Node {
			s.State = Held
		}
	} else if mirrored {
		s.State, s.Node, s.Level = Held, usage.Node, level(!usage.ConfigurationLevel())
	}
	return s
}

func level(ofInstance bool) string {
	if ofInstance {
		return string(v1alpha1.InstanceLevel)
	}
	return string(v1alpha1.ConfigurationLevel)
}
