package view

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
)

// ways are the smallest sets of pods whose end would let the request fit a node where
// nothing else is missing.
func (v *View) ways(l *ledger.Ledger, req *ledger.Request, open []string) []string {
	first := *req
	first.Priority = math.MaxInt32 // pods end by themselves, too, whatever their priority
	holdings := l.PotentialVictims(&first)
	var found []*ledger.Preemption
	for _, node := range holdings.Nodes(open) {
		candidates := holdings.On(node)
		for i := range candidates {
			candidates[i].Priority, candidates[i].Started = 0, candidates[i].Bound
		}
		if way := l.Preempt(ledger.Spread, node, req, candidates); way != nil && !way.Free {
			found = append(found, way)
		}
	}
	slices.SortStableFunc(found, ledger.Better)
	var texts []string
	for _, way := range found {
		if text := v.wayText(way, single(l, req, way, holdings.On(way.Node))); !slices.Contains(texts, text) && len(texts) < maxNeeds {
			texts = append(texts, text)
		}
	}
	return texts
}

// maxSingle is how many pods are tried alone.
const maxSingle = 50

// single are the pods each of which is enough where one is, that of the way first.
func single(l *ledger.Ledger, req *ledger.Request, way *ledger.Preemption, holders []ledger.Victim) []ledger.Victim {
	if len(way.Victims) != 1 {
		return nil
	}
	all := []ledger.Victim{way.Victims[0]}
	for i, v := range holders {
		if i == maxSingle {
			break
		}
		v.Priority = 0
		if alone := l.Preempt(ledger.Spread, way.Node, req, []ledger.Victim{v}); v.UID != all[0].UID && alone != nil && len(alone.Victims) == 1 {
			all = append(all, v)
		}
	}
	return all
}

func (v *View) wayText(way *ledger.Preemption, each []ledger.Victim) string {
	victims, and := way.Victims, " and "
	switch {
	case len(victims) == 0:
		return "pods that are being deleted have to be gone: then it can run on node " + way.Node
	case len(each) > 1:
		victims, and = each, " or "
	}
	var names []string
	for _, victim := range victims {
		where := "on node " + victim.Node
		if v.kubecriAway(victim.Node) != "" {
			where += ", where kubecri has to be Ready to release the slot"
		}
		names = append(names, fmt.Sprintf("%s (%s)", victim.Pod, where))
	}
	slices.Sort(names)
	if len(names) > 4 {
		names = append(names[:3], fmt.Sprintf("%d more", len(names)-3))
	}
	pods := "pod"
	if and == " and " && len(names) > 1 {
		pods = "pods"
	}
	have := map[bool]string{true: "have", false: "has"}[pods == "pods"]
	return fmt.Sprintf("%s %s %s to end: then it can run on node %s", pods, strings.Join(names, and), have, way.Node)
}

// noWay corrects what the conditions need where no pod's end would help.
func (v *View) noWay(waits []Wait) {
	for i := range waits {
		w := &waits[i]
		if w.Reason != "SlotsHeld" {
			continue
		}
		w.Needs = "no other pod's end would be enough: ask for fewer, or have more devices found"
		// Pods, and nodes, where kubelets give out slots: the ledger does not know whose they are.
		users, chosen := sets.New[string](), sets.New[string]()
		for _, s := range w.Holders {
			switch {
			case v.choosesSlots(s.Node):
				user := s.Holder()
				if s.Pod == "" {
					user = "a pod on node " + s.Node
				}
				users.Insert(user)
				chosen.Insert(s.Node)
			case s.PodUID == "" || v.pods[s.PodUID] == nil:
				w.Needs = "claims whose pod is gone or not known have to be released: kubectl kubeslot doctor"
			}
		}
		if len(users) > 0 {
			w.Needs = fmt.Sprintf("pods that hold them have to end: %s (on %s the kubelet gives out slots: "+
				"device-plugin mode)",
				some(sets.List(users), 4), some(sets.List(chosen), 3))
		}
	}
}

// heldWhereAway corrects what held slots need where kubecri, which would release them, is away from all
// nodes of the condition.
func (v *View) heldWhereAway(waits []Wait) {
	for i := range waits {
		w := &waits[i]
		if w.Reason == "SlotsHeld" && !slices.ContainsFunc(w.Nodes, func(node string) bool { return v.kubecriAway(node) == "" }) {
			w.Needs = "kubecri has to be Ready there again, and pods that hold them have to end"
		}
	}
}

// otherwise is what has to change about nodes that have slots for the pod.
func otherwise(nodes []Wait, short map[string]*ledger.Shortfall) []string {
	var needs []string
	for _, w := range nodes {
		var served []string
		for _, node := range w.Nodes {
			if short[node] == nil {
				served = append(served, node)
			}
		}
		if len(served) == 0 || w.Needs == "" || len(needs) == maxNeeds {
			continue
		}
		needs = append(needs, fmt.Sprintf("%s: %s", some(served, 3), w.Needs))
	}
	return needs
}
