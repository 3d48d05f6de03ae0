package ledger

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// containers are the lines of commands that are about what a pod requests.
const containers = "[init|sidecar] container resource=count ..."

// commands are those of TestScenarios.
var commands = map[string]struct {
	args  string // that the command takes; those in brackets may be left out
	lines string // of which its input is; "" if it takes none
	run   func(*story, step) string
}{
	// A story of its own begins.
	"ledger": {"[strategy]", "", func(s *story, c step) string {
		*s = *newStory()
		s.strategy = Strategy(arg(c, "strategy", string(Spread)))
		return ""
	}},
	// A new scheduler: the ledger is rebuilt from what the API shows.
	"restart": {"", "", func(s *story, _ step) string {
		s.Ledger = s.rebuilt()
		return ""
	}},

	// unique is Container, Pod, Node or none. discovery=(zone:z) selects nodes by their labels.
	"configuration": {"name [ns] [created] [unique] [capacity] [discovery] [deleting] [allocator] [status]", "",
		(*story).setConfiguration},
	"delete-configuration": {"name [ns]", "", func(s *story, c step) string {
		delete(s.api.configurations, c.ns+"/"+full(c.name))
		return s.happened(s.DeleteConfiguration(c.ns, full(c.name)))
	}},
	// A ResourceSlice lists the Instances, or a ResourceClaim's allocation has them.
	"dra": {"object [instances]", "", func(s *story, c step) string {
		var instances []string
		for _, name := range arg(c, "instances", []string(nil)) {
			instances = append(instances, full(name))
		}
		object := arg(c, "object", "")
		s.api.dra[object] = instances
		return s.happened(s.SetDRA(object, instances))
	}},
	// Which Instances the other allocator has yet.
	"handover": {"name", "", func(s *story, c step) string {
		for _, h := range s.Handovers() {
			if h.Configuration.Name == c.name {
				return cmp.Or(strings.Join(h.Held, " "), "none")
			}
		}
		return "not handed over"
	}},
	// The pod is bound to a node that chooses slots itself.
	"keep-until-claimed": {"pod node", containers, func(s *story, c step) string {
		a, refusal := s.fit(c)
		if refusal != "" {
			return refusal
		}
		return s.happened(s.KeepUntilClaimed(c.pod, c.node, a), show(a))
	}},
	// These nodes report it, each in a slice of its own, and no others.
	"instance": {"name nodes [ns]", "", (*story).setInstance},
	// No node reports it.
	"delete-instance": {"name [ns]", "", (*story).setInstance},
	"slice":           {"name node [ns]", "instance [twin|local-twin] [wrong|long] [unschedulable|gone]", (*story).setSlice},
	"delete-slice": {"name", "", func(s *story, c step) string {
		delete(s.api.slices, c.name)
		return s.happened(s.DeleteSlice(c.name))
	}},
	// Another takes the place of one that was not seen deleted. Without pod: a device plugin's.
	// pod=dra.… is a ResourceClaim.
	"claim": {"slot node [pod]", "", (*story).setClaim},
	"delete-claim": {"slot", "", func(s *story, c step) string {
		delete(s.api.claims, c.slot.String())
		return s.happened(s.DeleteClaim(c.slot.String()))
	}},
	"node": {"name [labels]", "", func(s *story, c step) string {
		s.api.nodes[c.name] = c.labels("labels")
		return s.happened(s.SetNode(c.name, s.api.nodes[c.name]))
	}},
	"delete-node": {"name", "", func(s *story, c step) string {
		delete(s.api.nodes, c.name)
		return s.happened(s.DeleteNode(c.name))
	}},

	// Which slots the pod would get.
	"fits": {"pod node [uid] [priority]", containers, func(s *story, c step) string {
		a, refusal := s.fit(c)
		return show(a) + refusal
	}},
	// The same, and it takes them.
	"schedule": {"pod node [uid] [priority]", containers, (*story).schedule},
	// May it still be bound as scheduled?
	"check": {"pod", "", func(s *story, c step) string {
		if err := s.Check(c.pod.UID); err != nil {
			return "no: " + err.Error()
		}
		return "ok"
	}},
	"forget": {"pod [uid]", "", func(s *story, c step) string { return s.happened(s.Forget(c.pod.UID)) }},
	// The API shows it bound as scheduled.
	"bound": {"pod [uid]", "", func(s *story, c step) string {
		s.api.pods[c.pod.UID] = s.scheduled[c.pod.UID]
		return s.observe(s.scheduled[c.pod.UID])
	}},
	// The API shows it bound by somebody.
	"observe": {"pod node [uid] [priority] [since]", "container resource slot ...", (*story).observeForeign},
	"terminating": {"pod", "", func(s *story, c step) string {
		s.api.ending[c.pod.UID] = true
		s.SetTerminating(c.pod.UID)
		return ""
	}},
	"remove": {"pod [uid]", "", func(s *story, c step) string {
		delete(s.api.pods, c.pod.UID)
		return s.happened(s.Remove(c.pod.UID))
	}},

	// Which pods have to go for this one. The slots are kept for it.
	"preempt":          {"pod node [priority] [protected]", containers, (*story).preempt},
	"clear-nomination": {"pod", "", func(s *story, c step) string { return s.happened(s.ClearNomination(c.pod.UID)) }},
	"nominated": {"pod", "", func(s *story, c step) string {
		if n := s.Nominated(c.pod.UID); n != "" {
			return "slots are kept on " + n
		}
		return "no slots are kept"
	}},
	// May it take all that is kept for it?
	"ready": {"pod", "", func(s *story, c step) string {
		ready := s.Ready(c.pod.UID)
		listed := slices.ContainsFunc(slices.Collect(maps.Keys(s.devices)), func(instance string) bool {
			return slices.Contains(s.ReadyFor(instance), c.pod.UID)
		})
		if ready != listed {
			return fmt.Sprintf("ready: %v, and listed as such: %v", ready, listed)
		}
		if ready {
			return "ready"
		}
		return "not yet"
	}},

	// Which nodes the pod can run on.
	"reach": {"[limit]", containers, (*story).reach},
	// Each slot and who holds it.
	"slots": {"", "", func(s *story, _ step) string { return s.show() }},
	// How many claims do not count, and how many devices are left out.
	"ignored": {"", "", func(s *story, _ step) string {
		claims, devices := s.Ignored()
		return fmt.Sprintf("%d claims, %d devices", claims, devices)
	}},
	// Which of several bound pods keeps a slot.
	"double-allocation": {"slot", "", (*story).doubleAllocation},
}
