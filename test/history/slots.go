package history

import (
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubeslot/kubeslot/types"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/slot"
)

// replay is what is known at one revision.
type replay struct {
	rules  Rules
	at     uint64
	report Report
	pods   map[string]*pod // by UID
	// claims are the entries of deviceUsage; holders the live bound pods by slot.
	claims  map[slot.Name]string
	holders map[slot.Name][]*pod
	existed map[slot.Name]bool // at some time
}

// pod is a pod that was bound with slots.
type pod struct {
	uid, name, node string
	// slots are its containers' by container, each with the form of its claim.
	slots   map[string]map[slot.Name]slot.Usage
	live    bool // neither ended nor gone
	claimed map[slot.Name]bool
	status  v1.PodStatus
	// preempted is set once a scheduler has made it go for another.
	preempted bool
}

func (p *pod) String() string { return p.name + " (" + p.uid + ")" }

// all returns the pod's slots, and how it claims each.
func (p *pod) all() map[slot.Name]slot.Usage {
	all := map[slot.Name]slot.Usage{}
	for _, slots := range p.slots {
		maps.Copy(all, slots)
	}
	return all
}

// claim is the value by which the pod claims the slot; "" if it has no part in it.
func (p *pod) claim(name slot.Name) string { return p.all()[name].String() }

// running returns the slots of the containers that run.
func (p *pod) running() map[slot.Name]slot.Usage {
	running := map[slot.Name]slot.Usage{}
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
		if !r.existed[name] {
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
func (r *replay) slotsOf(shown *v1.Pod) map[string]map[slot.Name]slot.Usage {
	info, err := assignment.Granted(shown.Annotations, string(shown.UID), shown.Spec.NodeName)
	if err != nil || info == nil || shown.Spec.NodeName == "" {
		return nil
	}
	slots := map[string]map[slot.Name]slot.Usage{}
	for _, containers := range []map[string]types.ContainerInfo{info.InitContainers, info.RunningContainers} {
		for container, c := range containers {
			grants, err := assignment.Grants(&c)
			if err != nil {
				r.violated("pod %s: %v", shown.Name, err)
			}
			for _, g := range grants {
				usage := slot.Usage{Node: shown.Spec.NodeName}
				if !g.InstanceLevel() {
					usage.Holder = string(shown.UID)
				}
				if slots[container] == nil {
					slots[container] = map[slot.Name]slot.Usage{}
				}
				slots[container][g.Slot] = usage
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

func (r *replay) instance(event watch.EventType, shown *akriv0.Instance) {
	now := map[slot.Name]string{}
	if event != watch.Deleted {
		for index := range int(shown.Spec.Capacity) {
			r.existed[slot.Name{Instance: shown.Name, Index: index}] = true
		}
		for key, value := range shown.Spec.DeviceUsage {
			if name, err := slot.Parse(key); err == nil && value != "" {
				now[name] = value
			}
		}
	}
	for _, name := range slices.SortedFunc(maps.Keys(r.claims), compare) {
		if before := r.claims[name]; name.Instance == shown.Name && now[name] != before {
			if now[name] != "" {
				r.violated("slot %s goes from %q to %q without having been released", name, before, now[name])
			}
			delete(r.claims, name)
		}
	}
	for _, name := range slices.SortedFunc(maps.Keys(now), compare) {
		if r.claims[name] == "" {
			r.claims[name] = now[name]
			r.claim(name, now[name])
		}
	}
}

// claim records that a node claims a slot, which must be for a pod there.
func (r *replay) claim(name slot.Name, value string) {
	r.report.Claims++
	found := false
	for _, p := range r.pods {
		if p.claim(name) == value {
			// By its value an instance-level claim is any such pod's on the node.
			p.claimed[name], found = true, true
		}
	}
	if !found {
		r.violated("slot %s is claimed as %q, and no pod was bound with it so", name, value)
	}
}
