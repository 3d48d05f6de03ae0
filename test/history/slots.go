package history

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	apitypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubeslot/kubeslot/types"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// replay is what is known at one revision.
type replay struct {
	rules  Rules
	at     uint64
	report Report
	pods   map[string]*pod // by UID
	// claims are the SlotClaims; holders the live bound pods by slot.
	claims  map[slot.Name]claim
	holders map[slot.Name][]*pod
	// capacity is the largest that was ever in force of each Configuration of the
	// history, by name; reported the Instances of which a slice ever had the device.
	capacity map[string]int
	reported map[string]bool
}

// claim is a SlotClaim, of which several can follow each other under one name.
type claim struct {
	uid          apitypes.UID
	holder, node string
	level        v1alpha1.Level
}

func (c claim) String() string { return fmt.Sprintf("%s by %s on %s", c.level, c.holder, c.node) }

// pod is a pod that was bound with slots.
type pod struct {
	uid, name, node string
	// slots are its containers' by container, each with how it was requested.
	slots   map[string]map[slot.Name]v1alpha1.Level
	live    bool // neither ended nor gone
	claimed map[slot.Name]bool
	status  v1.PodStatus
	// preempted is set once a scheduler has made it go for another.
	preempted bool
}

func (p *pod) String() string { return p.name + " (" + p.uid + ")" }

// all returns the slots of all the pod's containers.
func (p *pod) all() map[slot.Name]v1alpha1.Level {
	all := map[slot.Name]v1alpha1.Level{}
	for _, slots := range p.slots {
		maps.Copy(all, slots)
	}
	return all
}

// made reports whether the slot's claim is the pod's, as one of its containers was
// given the slot.
func (p *pod) made(name slot.Name, c claim) bool {
	if c.holder != p.uid || c.node != p.node {
		return false
	}
	for _, slots := range p.slots {
		if level, given := slots[name]; given && level == c.level {
			return true
		}
	}
	return false
}

// running returns the slots of the containers that run.
func (p *pod) running() map[slot.Name]v1alpha1.Level {
	running := map[slot.Name]v1alpha1.Level{}
	for _, statuses := range [][]v1.ContainerStatus{p.status.InitContainerStatuses, p.status.ContainerStatuses} {
		for _, s := range statuses {
			if s.State.Running != nil {
				maps.Copy(running, p.slots[s.Name])
			}
		}
	}
	return running
}

func (r *replay) pod(event watch.EventType, shown *v1.Pod) {
	uid := string(shown.UID)
	p := r.pods[uid]
	slots := r.slotsOf(shown)
	switch {
	case p == nil && len(slots) == 0:
		r.runsUnassigned(shown)
		return
	case p == nil:
		p = &pod{uid: uid, name: shown.Name, node: shown.Spec.NodeName, slots: slots, live: true, claimed: map[slot.Name]bool{}}
		r.pods[uid] = p
		r.bound(p)
	case !maps.EqualFunc(p.slots, slots, maps.Equal):
		r.violated("pod %s was bound with the slots %v, and shows %v", p, p.slots, slots)
	}
	p.status = shown.Status
	if !p.preempted && slices.ContainsFunc(p.status.Conditions, preempted) {
		p.preempted = true
		r.report.Preempted++
	}
	ended := event == watch.Deleted || shown.Status.Phase == v1.PodSucceeded || shown.Status.Phase == v1.PodFailed
	if ended && p.live {
		p.live = false
		for name := range p.all() {
			r.holders[name] = slices.DeleteFunc(r.holders[name], func(other *pod) bool { return other == p })
		}
	}
	for name := range p.running() {
		if !p.claimed[name] {
			r.violated("pod %s runs with slot %s without having claimed it", p, name)
		}
	}
}

func preempted(c v1.PodCondition) bool {
	return c.Type == v1.DisruptionTarget && c.Status == v1.ConditionTrue && c.Reason == v1.PodReasonPreemptionByScheduler
}

// bound makes the pod hold its slots.
func (r *replay) bound(p *pod) {
	r.report.Bound++
	for _, name := range slices.SortedFunc(maps.Keys(p.all()), compare) {
		if configuration, _ := slot.SplitInstance(name.Instance); !r.reported[name.Instance] || name.Index >= r.capacity[configuration] {
			r.violated("pod %s is bound with slot %s, which has never existed", p, name)
		}
		if others := r.holders[name]; len(others) > 0 {
			r.report.Doubles++
			if !r.rules.Doubles {
				r.violated("pod %s is bound with slot %s, which %v has", p, name, others)
			}
		}
		r.holders[name] = append(r.holders[name], p)
	}
}

// slotsOf returns the slots that a bound pod was given.
func (r *replay) slotsOf(shown *v1.Pod) map[string]map[slot.Name]v1alpha1.Level {
	info, err := assignment.Granted(shown.Annotations, string(shown.UID), shown.Spec.NodeName)
	if err != nil || info == nil || shown.Spec.NodeName == "" {
		return nil
	}
	slots := map[string]map[slot.Name]v1alpha1.Level{}
	for _, containers := range []map[string]types.ContainerInfo{info.InitContainers, info.RunningContainers} {
		for container, c := range containers {
			grants, err := assignment.Grants(&c)
			if err != nil {
				r.violated("pod %s: %v", shown.Name, err)
			}
			for _, g := range grants {
				level := v1alpha1.ConfigurationLevel
				if g.InstanceLevel() {
					level = v1alpha1.InstanceLevel
				}
				if slots[container] == nil {
					slots[container] = map[slot.Name]v1alpha1.Level{}
				}
				slots[container][g.Slot] = level
			}
		}
	}
	return slots
}

func (r *replay) runsUnassigned(shown *v1.Pod) {
	for _, s := range shown.Status.ContainerStatuses {
		if s.State.Running == nil {
			continue
		}
		for i := range shown.Spec.Containers {
			for name := range shown.Spec.Containers[i].Resources.Requests {
				if c := &shown.Spec.Containers[i]; c.Name == s.Name && strings.HasPrefix(string(name), assignment.ResourcePrefix) {
					r.violated("pod %s runs container %s, which requests %s, without any slot", shown.Name, c.Name, name)
				}
			}
		}
	}
}

func (r *replay) configuration(shown *akriv0.Configuration) {
	r.capacity[shown.Name] = max(r.capacity[shown.Name], shown.Spec.Slots())
}

// slice notes the devices that the node sees. A device that is not what it says is
// nobody's.
func (r *replay) slice(shown *v1alpha1.DeviceSlice) {
	for i := range shown.Spec.Devices {
		if d := &shown.Spec.Devices[i]; d.Check(shown.Spec.NodeName) == nil {
			r.reported[d.Instance()] = true
		}
	}
}

// claim notes that a node claims a slot, which must be for a pod there, or that it
// releases one.
func (r *replay) claim(event watch.EventType, shown *v1alpha1.SlotClaim) {
	name, err := shown.Slot()
	if err != nil {
		r.violated("SlotClaim %q: %v", shown.Name, err)
		return
	}
	if configuration, _ := slot.SplitInstance(name.Instance); !r.recorded(configuration) {
		return
	}
	now := claim{uid: shown.UID, holder: shown.Spec.Holder, node: shown.Spec.NodeName, level: shown.Spec.Level}
	before, claimed := r.claims[name]
	switch {
	case claimed && before.uid != now.uid:
		r.violated("slot %s goes from %s to %s without having been released", name, before, now)
	case claimed && before != now:
		r.violated("slot %s goes from %s to %s in one SlotClaim", name, before, now)
	}
	if event == watch.Deleted {
		delete(r.claims, name)
		return
	}
	if r.claims[name] = now; claimed && before == now {
		return // its metadata has changed
	}
	r.report.Claims++
	p := r.pods[now.holder]
	if p == nil || !p.made(name, now) {
		r.violated("slot %s is claimed %s, and no pod was bound with it so", name, now)
		return
	}
	p.claimed[name] = true
}

// recorded reports whether the history has a Configuration of that name.
func (r *replay) recorded(configuration string) bool {
	_, has := r.capacity[configuration]
	return has
}
