package view

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/kubectl-kubeslot/message"
	"github.com/kubeslot/kubeslot/types/slot"
)

// unscheduled says why a pod has no node: what is true of the objects now, and what the
// scheduler said that cannot be seen in them.
func (v *View) unscheduled(pod *corev1.Pod, p *Pod) {
	if p.State == Gated {
		p.Waits = []Wait{gatedWait(pod)}
		p.Needs = []string{p.Waits[0].Needs}
		return
	}
	d := v.diagnosed(pod)
	p.Waits, p.Needs = slices.Clone(d.waits), d.needs
	p.Waits = append(p.Waits, v.unallocatedWaits(pod)...)
	said := schedulerSays(pod)
	if scheduling(pod) == nil {
		p.Waits = append([]Wait{{Reason: "NoScheduler", Source: FromKubeslot,
			Why:   fmt.Sprintf("no scheduler has tried it yet: its schedulerName is %q", pod.Spec.SchedulerName),
			Needs: "a scheduler of that name has to run; if this stays, there is none, or the name in the pod is wrong"}}, p.Waits...)
	}
	for _, part := range v.parse(said) {
		switch {
		case part.About == message.Preemption, d.complete && v.computed(part, d.waits):
			continue
		case part.About == message.Slots && (!d.complete || part.Reason == "InvalidRequest"):
			resource := strings.TrimPrefix(part.Fields["resource"], "akri.sh/")
			if of, _ := slot.SplitInstance(resource); part.Reason == "NoSuchResource" && v.configurations[of] != nil {
				continue // which Instances there are is said already
			}
			// The scheduler sees more than a user of one namespace, and says it better.
			p.Waits = slices.DeleteFunc(p.Waits, func(w Wait) bool {
				return w.Source == FromKubeslot && (w.Reason == part.Reason && part.Reason == "InvalidRequest" ||
					w.Reason == "NoSuchResource" && w.Resource == resource)
			})
			if slices.ContainsFunc(p.Waits, func(w Wait) bool { return w.Reason == part.Reason && w.Holders != nil }) {
				continue
			}
		}
		p.Waits = append(p.Waits, v.partWait(pod, part))
	}
	if p.State == Preempting {
		p.Waits = append(p.Waits, Wait{Reason: "Preempting", Source: FromKubeslot, Nodes: []string{pod.Status.NominatedNodeName},
			Why:   "pods are made to go for it, so that it can run on node " + pod.Status.NominatedNodeName,
			Needs: "they have to end; it gets what they leave"})
	}
	if len(p.Waits) == 0 && len(p.Requests) > 0 {
		p.Waits = append(p.Waits, v.nothingInItsWay(d))
	}
	p.Needs = needs(p.Waits, p.Needs)
}

// needs are what would let the pod run, each of which is enough: one of the ways, or what
// a condition of nodes needs where none is known; and with it what the conditions of the
// pod as a whole need, all of them.
func needs(waits []Wait, ways []string) []string {
	var whole, others []string
	for _, w := range waits {
		switch {
		case w.Needs == "":
		case len(w.Nodes) > 0 || w.NodeCount > 0:
			others = append(others, w.Needs)
		case !slices.Contains(whole, w.Needs):
			whole = append(whole, w.Needs)
		}
	}
	if act := slices.DeleteFunc(slices.Clone(whole), func(need string) bool { return strings.HasPrefix(need, nothing) }); len(act)+len(ways)+len(others) > 0 {
		whole = act // what is awaited comes by itself
	}
	if len(ways) == 0 {
		ways = others
	}
	if len(ways) == 0 && len(whole) > 0 {
		return []string{strings.Join(whole, "; and ")}
	}
	var all []string
	for _, way := range ways {
		if need := strings.Join(append(slices.Clone(whole), way), "; and "); !slices.Contains(all, need) && len(all) < maxNeeds {
			all = append(all, need)
		}
	}
	return all
}

// nothing begins the needs of what takes a moment.
const nothing = "nothing: "

// seen are the reasons that can be seen in the objects: of them, what the scheduler said
// last may be out of date.
var seen = map[string]bool{"AllocatedByDRA": true,
	"NoSuchResource": true, "NoDevice": true, "DevicesApart": true, "NotReached": true, "TooFewDevices": true,
	"SlotsHeld": true, "NotAdvertised": true, kubecriAway: true, "NodeCordoned": true, "NodeTainted": true, "NodeNotSelected": true}

// computed reports whether a reason of the scheduler's is among the waits, or would be if
// it were still so.
func (v *View) computed(part message.Part, waits []Wait) bool {
	// Without all pods and nodes these two are not seen.
	hidden := (v.objects.PodsOf != "" || len(v.objects.Nodes) == 0) && (part.Reason == "NotAdvertised" || part.Reason == kubecriAway)
	if part.About == message.Slots && seen[part.Reason] && !hidden {
		return true
	}
	resource, ours := strings.CutPrefix(part.Fields["resource"], "akri.sh/")
	return slices.ContainsFunc(waits, func(w Wait) bool { // a stock scheduler only counts what is ours
		return w.Resource == resource && (w.Reason == part.Reason || ours && part.Reason == "InsufficientResource")
	})
}

// diagnosis is why a pod cannot have a node as things are.
type diagnosis struct {
	waits []Wait
	needs []string
	// fits are the nodes where nothing is in its way.
	fits []string
	// complete is whether the objects say all that there is to know of slots.
	complete bool
}

// maxDiagnoses is how many pods, each of which asks for something else, are diagnosed by the objects.
// What more pods wait for is what the scheduler said last.
const maxDiagnoses = 200

// diagnosed is the pod's diagnosis, made once for all pods that ask for the same.
func (v *View) diagnosed(pod *corev1.Pod) diagnosis {
	key, err := json.Marshal(asks(pod))
	if err != nil {
		return v.diagnose(pod)
	}
	v.diagnosing.Lock()
	defer v.diagnosing.Unlock()
	d, known := v.diagnoses[string(key)]
	switch {
	case !known && len(v.diagnoses) >= maxDiagnoses:
		return diagnosis{}
	case !known:
		d = v.diagnose(pod)
		v.diagnoses[string(key)] = d
	}
	return d
}

// asks is what a pod's diagnosis depends on.
func asks(pod *corev1.Pod) corev1.PodSpec {
	of := func(containers []corev1.Container) []corev1.Container {
		all := make([]corev1.Container, len(containers))
		for i := range containers {
			c := &containers[i]
			all[i] = corev1.Container{Name: c.Name, RestartPolicy: c.RestartPolicy, Resources: c.Resources}
		}
		return all
	}
	s := &pod.Spec
	return corev1.PodSpec{InitContainers: of(s.InitContainers), Containers: of(s.Containers), Resources: s.Resources,
		Overhead: s.Overhead, NodeSelector: s.NodeSelector, Affinity: s.Affinity, Tolerations: s.Tolerations}
}

// diagnose asks the ledger and the nodes.
func (v *View) diagnose(pod *corev1.Pod) diagnosis {
	if w := v.givenByDRA(pod); w != nil {
		return diagnosis{waits: []Wait{*w}, complete: true}
	}
	if len(v.slotRequests(pod)) == 0 {
		return diagnosis{}
	}
	req, err := v.asked(pod)
	if err != nil { // it is in the scheduler's words
		w := v.partWait(pod, v.parse(err.Error())[0])
		w.Source = FromKubeslot
		return diagnosis{waits: []Wait{w}}
	}
	l := v.account()
	if l == nil {
		return diagnosis{waits: v.fromInstances(pod)}
	}
	d := diagnosis{complete: true}
	if _, shortfall := l.Reach(req, math.MaxInt); shortfall != nil {
		d.waits = []Wait{v.shortWait(shortfall, nil)} // it is so on all nodes
		return d
	}
	short := map[string]*ledger.Shortfall{}
	var open []string // nodes where nothing but slots may be missing
	names := v.nodeNames()
	for _, node := range names {
		if _, shortfall := l.Draft(ledger.Spread, req.Pod).Fit(node, req); shortfall != nil {
			short[node] = shortfall
		}
	}
	nodes := v.nodeWaits(pod, short)
	refused := map[string]bool{}
	for _, w := range nodes {
		for _, name := range w.Nodes {
			refused[name] = true
		}
	}
	for _, node := range names {
		switch {
		case refused[node]:
		case short[node] == nil:
			d.fits = append(d.fits, node)
		case short[node].Resolvable():
			open = append(open, node)
		}
	}
	if len(d.fits) > 0 {
		d.waits = nil
		return d
	}
	d.waits = v.shortWaits(short)
	if d.needs = v.ways(l, req, open); len(d.needs) == 0 && len(open) > 0 {
		v.noWay(d.waits)
	}
	v.heldWhereAway(d.waits)
	d.waits = append(d.waits, nodes...)
	d.needs = append(d.needs, otherwise(nodes, short)...)
	d.needs = d.needs[:min(len(d.needs), maxNeeds)]
	return d
}

// nothingInItsWay is said of a pod that could run as things are.
func (v *View) nothingInItsWay(d diagnosis) Wait {
	w := Wait{Reason: "TriedAgain", Source: FromKubeslot, Nodes: d.fits,
		Why: "as far as can be seen, nothing is in its way now", Needs: "nothing: the scheduler tries it again"}
	if before := v.preempting(); len(before) > 0 {
		w.Reason, w.Why = "SlotsKept", "slots that look free are kept for a pod that others were made to go for: "+some(before, 3)
		w.Needs = "it gets a slot when that pod has its own"
	}
	return w
}

// preemptors are the names of the pods that ask for devices, and that others are made to go for.
func (v *View) preemptors() []string {
	var names []string
	for i := range v.objects.Pods {
		pod := &v.objects.Pods[i]
		if state, _ := stateOf(pod); state == Preempting && Asks(pod) {
			names = append(names, fullName(pod))
		}
	}
	slices.Sort(names)
	return names
}
