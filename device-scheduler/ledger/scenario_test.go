package ledger

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// TestScenarios runs the stories in testdata/scenarios. Commands:
//
//	ledger strategy=Pack                       start anew
//	configuration name=c [ns=] [created=] [unique=Container|Pod|Node|none] [capacity=] [discovery=(zone:z)] [deleting]
//	delete-configuration name=c [ns=]
//	instance name=c-1 nodes=(a,b) [ns=] [capacity=]  these nodes report it, and no others; the Configuration's capacity
//	delete-instance name=c-1 [ns=]             no node reports it
//	slice name=a-0 node=a [ns=]                lines "instance [twin|local twin|wrong|long|unschedulable|gone|gone twin]"
//	delete-slice name=a-0
//	claim slot=s node=a [pod=p]                another takes the place of one that was not seen deleted; without pod: a device plugin's
//	delete-claim slot=s
//	node name=a [labels=(zone:z)], delete-node name=a
//	ignored                                    how many claims do not count, how many devices are left out
//	schedule pod=p node=a [uid=]               lines "[init|sidecar] container resource=count ..."
//	fits                                       the same, without taking the slots
//	bound pod=p [uid=]                         the API shows it bound as scheduled
//	observe pod=p node=a [uid=]                lines "container resource slot ...": bound by somebody
//	forget, remove, terminating pod=p
//	check pod=p                                may it still be bound as scheduled
//	restart [strategy=Pack]                    a new scheduler: the ledger is rebuilt from what the API shows
//	preempt pod=p node=a [priority=] [protected=(q,…)]  lines as for schedule: victims, and nominate
//	clear-nomination, nominated, ready pod=p         ready: may it take all that is kept for it
//	orphans waiting=(p,…)                      claims for pods that wait without slots
//	double-allocation slot=s                         which of several bound pods keeps a slot
//	reach limit=n                              lines as for schedule
//	slots                                      each slot and who holds it
//
// Each answer ends with the event, if there is one: what waiting pods may have now.
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata/scenarios", func(t *testing.T, path string) {
		s := newStory()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			out := s.run(t, d)
			checkInvariants(t, s.Ledger)
			return short(out)
		})
	})
}

type story struct {
	*Ledger
	strategy  Strategy
	scheduled map[string]scheduled // by UID
	capacity  map[string]int32     // of Configurations
	// slicesMade is the time: each slice is a second younger than the one before.
	slicesMade int64
	api        api
}

func newStory() *story {
	return &story{Ledger: New(), strategy: Spread, scheduled: map[string]scheduled{}, capacity: map[string]int32{}, api: newAPI()}
}

func (s *story) run(t *testing.T, d *datadriven.TestData) string {
	arg := func(name, fallback string) string {
		if !d.HasArg(name) {
			return fallback
		}
		var v string
		d.ScanArgs(t, name, &v)
		return v
	}
	pod := Pod{Namespace: "default", Name: arg("pod", "")}
	pod.UID = arg("uid", pod.Name)
	priority, _ := strconv.Atoi(arg("priority", "0"))
	pod.Priority = int32(priority)
	pod.Bound, _ = strconv.ParseInt(arg("since", "0"), 10, 64)
	node, ns, name := arg("node", ""), arg("ns", "default"), arg("name", "")
	vals := func(key string) (vals []string, given bool) {
		for _, a := range d.CmdArgs {
			if a.Key == key {
				return a.Vals, true
			}
		}
		return nil, false
	}

	switch d.Cmd {
	case "ledger":
		*s = *newStory()
		s.strategy = Strategy(arg("strategy", string(Spread)))
		return ""
	case "configuration":
		created, _ := strconv.ParseInt(arg("created", "0"), 10, 64)
		c := &akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Name: full(name), Namespace: ns,
			CreationTimestamp: metav1.Unix(created, 0)}}
		if d.HasArg("deleting") {
			c.DeletionTimestamp = &metav1.Time{}
		}
		if u := arg("unique", ""); u == "none" {
			c.Spec.UniqueDevices = new(bool)
		} else {
			c.Spec.UniqueScope = akriv0.UniqueScope(u)
		}
		if selector, given := vals("discovery"); given {
			c.Spec.Discovery = &akriv0.Discovery{NodeSelector: labels(selector)}
		}
		if capacity, err := strconv.Atoi(arg("capacity", "")); err == nil {
			s.capacity[c.Name] = int32(capacity)
		}
		c.Spec.Capacity = s.capacity[c.Name]
		s.api.configurations[ns+"/"+c.Name] = c
		return s.happened(s.SetConfiguration(c))
	case "delete-configuration":
		delete(s.api.configurations, ns+"/"+full(name))
		return s.happened(s.DeleteConfiguration(ns, full(name)))
	case "instance", "delete-instance":
		var event Event
		if capacity, err := strconv.Atoi(arg("capacity", "")); err == nil {
			event.add(s.setCapacity(name, int32(capacity)))
		}
		nodes, _ := vals("nodes")
		for _, node := range nodes {
			event.add(s.setSlice(sliceOf(node+"-"+ns+"-"+name, node, deviceOf(name, ns, node))))
		}
		for _, slice := range slices.Sorted(maps.Keys(s.api.slices)) {
			if node, of, _ := strings.Cut(slice, "-"); of == ns+"-"+name && !slices.Contains(nodes, node) {
				delete(s.api.slices, slice)
				event.add(s.DeleteSlice(slice))
			}
		}
		return s.happened(event)
	case "slice":
		slice := sliceOf(name, node)
		for _, line := range lines(d.Input) {
			instance, how, _ := strings.Cut(line, " ")
			device := deviceOf(instance, ns, node)
			switch how {
			case "twin":
				device = twinOf(device, "")
			case "local twin":
				device = twinOf(device, node)
			case "wrong":
				device.Hash = "000000"
			case "unschedulable":
				device.Unschedulable = true
			case "gone":
				device.Unschedulable, device.Gone = true, true
			case "gone twin":
				device = twinOf(device, "")
				device.Unschedulable, device.Gone = true, true
			case "long":
				device.Hash = slot.InstanceHash(device.ID, device.Shared, node, slot.LongHash)
			}
			slice.Spec.Devices = append(slice.Spec.Devices, device)
		}
		s.slicesMade++
		slice.CreationTimestamp = metav1.Unix(s.slicesMade, 0)
		if now := s.api.slices[name]; now != nil {
			slice.CreationTimestamp = now.CreationTimestamp
		}
		s.api.slices[name] = slice
		event, errs := s.SetSlice(slice)
		out := ""
		for _, err := range errs {
			out += "left out: " + err.Error() + "\n"
		}
		return out + s.happened(event)
	case "delete-slice":
		delete(s.api.slices, name)
		return s.happened(s.DeleteSlice(name))
	case "claim":
		c := claimOf(parse(t, arg("slot", "")), node, pod.UID)
		if pod.UID != "" {
			c.Spec.Pod = &v1alpha1.PodReference{Namespace: "ns", Name: pod.Name, UID: types.UID(pod.UID)}
		}
		s.api.claims[c.Name] = c
		return s.happened(s.SetClaim(c))
	case "delete-claim":
		name := parse(t, arg("slot", "")).String()
		delete(s.api.claims, name)
		return s.happened(s.DeleteClaim(name))
	case "node":
		pairs, _ := vals("labels")
		s.api.nodes[name] = labels(pairs)
		return s.happened(s.SetNode(name, labels(pairs)))
	case "delete-node":
		delete(s.api.nodes, name)
		return s.happened(s.DeleteNode(name))
	case "ignored":
		claims, devices := s.Ignored()
		return fmt.Sprintf("%d claims, %d devices", claims, devices)
	case "schedule", "fits":
		a, shortfall := s.Draft(s.strategy, pod).Fit(node, request(t, pod, d.Input))
		if shortfall != nil {
			if shortfall.Resolvable() {
				return "waits: " + shortfall.String()
			}
			return "cannot: " + shortfall.String()
		}
		if d.Cmd == "schedule" {
			event, err := s.Assume(pod, node, a)
			if err != nil {
				return "error: " + err.Error()
			}
			s.scheduled[pod.UID] = scheduled{pod, node, a}
			if !event.Empty() {
				return show(a) + "\n" + s.happened(event)
			}
		}
		return show(a)
	case "check":
		if err := s.Check(pod.UID); err != nil {
			return "no: " + err.Error()
		}
		return "ok"
	case "restart":
		s.strategy = Strategy(arg("strategy", string(s.strategy)))
		s.Ledger = s.api.ledger(rand.New(rand.NewPCG(1, 1)))
		return ""
	case "bound":
		b := s.scheduled[pod.UID]
		s.api.pods[pod.UID] = b
		return s.observed(s.Observe(b.pod, b.node, b.a))
	case "observe":
		a := Assignment{}
		for _, line := range lines(d.Input) {
			words := strings.Fields(line)
			for i, name := range words[2:] {
				a[words[0]] = append(a[words[0]], assignment.Grant{Resource: full(words[1]), Ordinal: i, Slot: parse(t, name)})
			}
		}
		if _, known := s.api.pods[pod.UID]; !known {
			s.api.pods[pod.UID] = scheduled{pod, node, a}
		}
		return s.observed(s.Observe(pod, node, a))
	case "double-allocation":
		c := s.DoubleAllocationOf(parse(t, arg("slot", "")))
		if c == nil {
			return "none"
		}
		out := "winner: " + c.Winner.Name
		for _, p := range c.Losers {
			out += "; loser: " + p.Name
		}
		return out
	case "orphans":
		waiting, _ := vals("waiting")
		out := "orphaned:"
		for _, c := range s.OrphanedClaims(func(uid string) bool { return slices.Contains(waiting, uid) }) {
			out += fmt.Sprintf(" %s for %s on %s", c.Name, c.Holder, c.Node)
		}
		return out
	case "terminating":
		s.api.ending[pod.UID] = true
		s.SetTerminating(pod.UID)
		return ""
	case "nominated":
		if n := s.Nominated(pod.UID); n != "" {
			return "slots are kept on " + n
		}
		return "no slots are kept"
	case "ready":
		if s.Ready(pod.UID) {
			return "ready"
		}
		return "not yet"
	case "clear-nomination":
		return s.happened(s.ClearNomination(pod.UID))
	case "preempt":
		req := request(t, pod, d.Input)
		candidates := slices.DeleteFunc(s.PotentialVictims(req).On(node), func(v Victim) bool { return v.Priority >= pod.Priority })
		protected, _ := vals("protected")
		for i := range candidates {
			candidates[i].Protected = slices.Contains(protected, candidates[i].Name)
		}
		p := s.Preempt(s.strategy, node, req, candidates)
		if p == nil {
			return "no victims help"
		}
		out := "victims:"
		for _, v := range p.Victims {
			out += fmt.Sprintf(" %s on %s", v.Name, v.Node)
		}
		if p.Free {
			out = "fits as it is"
		}
		out += "\n" + show(p.Assignment)
		if event := s.Nominate(pod, node, p.Assignment); !event.Empty() {
			out += "\n" + s.happened(event)
		}
		return out
	case "forget":
		return s.happened(s.Forget(pod.UID))
	case "remove":
		delete(s.api.pods, pod.UID)
		return s.happened(s.Remove(pod.UID))
	case "reach":
		limit, _ := strconv.Atoi(arg("limit", "1000"))
		nodes, shortfall := s.Reach(request(t, pod, d.Input), limit)
		switch {
		case shortfall != nil:
			return "cannot: " + shortfall.String()
		case nodes == nil:
			return "any node"
		}
		return strings.Join(nodes, " ")
	case "slots":
		return s.show()
	}
	t.Fatalf("%s: unknown command %q", d.Pos, d.Cmd)
	return ""
}
