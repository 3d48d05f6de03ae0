package view

import (
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// Slots returns the slots of all Instances, by Configuration and name. The slice is the
// caller's.
func (v *View) Slots() []Slot { return slices.Clone(v.slots().all) }

func (v *View) slots() *slotIndex {
	v.indexed.Do(func() {
		x := slotIndex{ofInstance: make(map[string][]Slot, len(v.instances)), ofPod: map[string][]Slot{}}
		for _, name := range slices.Sorted(maps.Keys(v.of)) {
			for _, in := range v.of[name] {
				from := len(x.all)
				x.all = v.appendSlots(x.all, in)
				x.ofInstance[in.Name] = x.all[from:len(x.all):len(x.all)]
			}
		}
		for _, name := range slices.Sorted(maps.Keys(v.claims)) {
			if s, ok := v.slotWithoutInstance(name); ok {
				x.all = append(x.all, s)
			}
		}
		for i := range x.all {
			for _, uid := range v.userUIDs(&x.all[i]) {
				x.ofPod[uid] = append(x.ofPod[uid], x.all[i])
			}
		}
		v.index = x
	})
	return &v.index
}

// slotWithoutInstance is a slot that is held of a device whose Instance is gone, as when
// its Configuration was deleted.
func (v *View) slotWithoutInstance(claim string) (Slot, bool) {
	name, err := slot.Parse(claim)
	if err != nil || v.instances[name.Instance] != nil {
		return Slot{}, false
	}
	c, in := v.claims[claim], &akriv0.Instance{ObjectMeta: metav1.ObjectMeta{Name: name.Instance}}
	in.Spec.ConfigurationName = c.Labels[v1alpha1.ConfigurationLabel]
	switch {
	case c.Spec.Pod != nil:
		in.Namespace = c.Spec.Pod.Namespace
	case c.Spec.ResourceClaim != nil:
		in.Namespace = c.Spec.ResourceClaim.Namespace
	}
	return v.slot(in, name), true
}

// userUIDs are the pods that have the slot.
func (v *View) userUIDs(s *Slot) []string {
	if s.ResourceClaim == "" {
		if s.PodUID == "" {
			return nil
		}
		return []string{s.PodUID}
	}
	var all []string
	for _, user := range v.usersOf(v.claims[s.Name]) {
		all = append(all, string(user.UID))
	}
	return all
}

// slotsOf returns the Instance's slots by index. A slot beyond the capacity is among
// them as long as somebody has it. They are not to be changed.
func (v *View) slotsOf(in *akriv0.Instance) []Slot { return v.slots().ofInstance[in.Name] }

func (v *View) appendSlots(all []Slot, in *akriv0.Instance) []Slot {
	count := v.capacity(in)
	for index := range count {
		all = append(all, v.slot(in, slot.Name{Instance: in.Name, Index: index}))
	}
	for _, index := range slices.Sorted(maps.Keys(v.used[in.Name])) {
		if index < count {
			continue
		}
		if s := v.slot(in, slot.Name{Instance: in.Name, Index: index}); s.State != Free {
			s.BeyondCapacity = true
			all = append(all, s)
		}
	}
	return all
}

func (v *View) slot(in *akriv0.Instance, name slot.Name) Slot {
	s := Slot{Name: name.String(), InstanceNamespace: in.Namespace, Labels: in.Labels, Instance: in.Name, Configuration: in.Spec.ConfigurationName, Device: v.deviceID(in), State: Free}
	if c := v.claims[s.Name]; c != nil {
		s.State, s.Node, s.Container, s.Level, s.Since = Held, c.Spec.NodeName, c.Spec.Container, string(c.Spec.Level), c.CreationTimestamp.Time
		if p := v.userOf(c); p != nil {
			s.Namespace, s.Pod, s.PodUID = p.Namespace, p.Name, string(p.UID)
		}
		if of := c.Spec.ResourceClaim; of != nil {
			s.ResourceClaim, s.Users = of.Namespace+"/"+of.Name, userNames(v.usersOf(c))
		}
		s.Unreachable = v.releaseOf(c).Waits()
		return s
	}
	if grants := v.granted[s.Name]; len(grants) > 0 {
		g := grants[0]
		s.State, s.Namespace, s.Pod, s.Container, s.Node = Assigned, g.pod.Namespace, g.pod.Name, g.containers[0], g.pod.Spec.NodeName
		s.PodUID, s.Level, s.Since = string(g.pod.UID), level(g.grant), scheduled(g.pod)
		if container := v.without(g); container != "" && g.pod.DeletionTimestamp == nil {
			s.State, s.Container = Missing, container
		}
		if usage, err := slot.ParseUsage(in.Spec.DeviceUsage[s.Name]); err == nil && !usage.Free() && usage.Node == s.Node && v.objects.Claims == nil {
			s.State = Held // by what the Instance says, to a user who may not list claims
		}
		return s
	}
	// For a user who may not list claims the Instance says who uses it.
	if usage, err := slot.ParseUsage(in.Spec.DeviceUsage[s.Name]); err == nil && !usage.Free() && v.objects.Claims == nil {
		s.State, s.Node, s.Level = Held, usage.Node, string(v1alpha1.InstanceLevel)
		if usage.ConfigurationLevel() {
			s.Level = string(v1alpha1.ConfigurationLevel)
		}
	}
	return s
}

func level(g assignment.Grant) string {
	if g.InstanceLevel() {
		return string(v1alpha1.InstanceLevel)
	}
	return string(v1alpha1.ConfigurationLevel)
}
