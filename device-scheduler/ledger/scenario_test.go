package ledger

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/slot"
)

// TestScenarios runs the stories in testdata/scenarios. Commands:
//
//	ledger strategy=Pack                       start anew
//	configuration name=c [ns=] [created=] [unique=Container|Pod|Node|none] [deleting]
//	instance name=c-1 config=c capacity=2 nodes=(a,b) [ns=]  and claims as "<slot> <usage>" lines
//	delete-configuration, delete-instance      name= [ns=]
//	schedule pod=p node=a [uid=]               lines "[init|sidecar] container resource=count ..."
//	fits                                       the same, without taking the slots
//	bound pod=p [uid=]                         the API shows it bound as scheduled
//	observe pod=p node=a [uid=]                lines "container resource slot ...": bound by somebody
//	forget, remove, ending pod=p
//	check pod=p                                may it still be bound as scheduled
//	restart [strategy=Pack]                    a new scheduler: the ledger is rebuilt from what the API shows
//	preempt pod=p node=a [priority=] [protected=(q,…)]  lines as for schedule: victims, and nominate
//	denominate, nominated, ready pod=p         ready: may it take all that is kept for it
//	strays waiting=(p,…)                       claims for pods that wait without slots
//	contested slot=s                           who keeps a slot that several pods hold
//	reach limit=n                              lines as for schedule
//	slots                                      each slot and who holds it
//
// Each answer ends with what waiting pods may have gained, if anything.
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata/scenarios", func(t *testing.T, path string) {
		s := newStory()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			out := s.run(t, d)
			checkInvariants(t, s.Ledger)
			return out
		})
	})
}

type story struct {
	*Ledger
	strategy  Strategy
	scheduled map[string]scheduled // by UID
	api       api
}

// api is what a new scheduler would read.
type api struct {
	configurations map[string]*akriv0.Configuration // by namespace/name
	instances      map[string]*akriv0.Instance
	bound          map[string]scheduled // by UID
	ending         map[string]bool
}

type scheduled struct {
	pod  Pod
	node string
	a    Assignment
}

func newStory() *story {
	return &story{Ledger: New(), strategy: Spread, scheduled: map[string]scheduled{}, api: api{
		configurations: map[string]*akriv0.Configuration{}, instances: map[string]*akriv0.Instance{},
		bound: map[string]scheduled{}, ending: map[string]bool{}}}
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
	node, ns := arg("node", ""), arg("ns", "default")

	switch d.Cmd {
	case "ledger":
		*s = *newStory()
		s.strategy = Strategy(arg("strategy", string(Spread)))
		return ""
	case "configuration":
		created, _ := strconv.ParseInt(arg("created", "0"), 10, 64)
		c := &akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Name: arg("name", ""), Namespace: ns,
			CreationTimestamp: metav1.Unix(created, 0)}}
		if d.HasArg("deleting") {
			c.DeletionTimestamp = &metav1.Time{}
		}
		if u := arg("unique", ""); u == "none" {
			c.Spec.UniqueDevices = new(bool)
		} else {
			c.Spec.UniqueScope = akriv0.UniqueScope(u)
		}
		s.api.configurations[ns+"/"+c.Name] = c
		return s.gained(s.SetConfiguration(c))
	case "delete-configuration":
		delete(s.api.configurations, ns+"/"+arg("name", ""))
		return s.gained(s.DeleteConfiguration(ns, arg("name", "")))
	case "instance", "delete-instance":
		in := &akriv0.Instance{ObjectMeta: metav1.ObjectMeta{Name: arg("name", ""), Namespace: ns},
			Spec: akriv0.InstanceSpec{ConfigurationName: arg("config", ""), DeviceUsage: map[string]string{}}}
		if d.Cmd == "delete-instance" {
			delete(s.api.instances, ns+"/"+in.Name)
			return s.gained(s.DeleteInstance(in))
		}
		capacity, _ := strconv.Atoi(arg("capacity", "1"))
		in.Spec.Capacity = int32(capacity)
		for _, a := range d.CmdArgs {
			if a.Key == "nodes" {
				in.Spec.Nodes = a.Vals
			}
		}
		for _, line := range lines(d.Input) {
			name, usage, _ := strings.Cut(line, " ")
			in.Spec.DeviceUsage[name] = usage
		}
		s.api.instances[ns+"/"+in.Name] = in
		return s.gained(s.SetInstance(in))
	case "schedule", "fits":
		a, shortfall := s.Draft(s.strategy).For(pod).Fit(node, request(t, pod, d.Input))
		if shortfall != nil {
			if shortfall.Resolvable() {
				return "waits: " + shortfall.String()
			}
			return "cannot: " + shortfall.String()
		}
		if d.Cmd == "schedule" {
			gain, err := s.Assume(pod, node, a)
			if err != nil {
				return "error: " + err.Error()
			}
			s.scheduled[pod.UID] = scheduled{pod, node, a}
			if !gain.Empty() {
				return show(a) + "\n" + s.gained(gain)
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
		s.restart()
		return ""
	case "bound":
		b := s.scheduled[pod.UID]
		s.api.bound[pod.UID] = b
		return s.observed(s.Observe(b.pod, b.node, b.a))
	case "observe":
		a := Assignment{}
		for _, line := range lines(d.Input) {
			words := strings.Fields(line)
			for i, name := range words[2:] {
				n, err := slot.Parse(name)
				if err != nil {
					t.Fatal(err)
				}
				a[words[0]] = append(a[words[0]], assignment.Grant{Resource: words[1], Ordinal: i, Slot: n})
			}
		}
		if _, known := s.api.bound[pod.UID]; !known {
			s.api.bound[pod.UID] = scheduled{pod, node, a}
		}
		return s.observed(s.Observe(pod, node, a))
	case "contested":
		name, err := slot.Parse(arg("slot", ""))
		if err != nil {
			t.Fatal(err)
		}
		c := s.Contested(name)
		if c == nil {
			return "not contested"
		}
		out := "keeps: " + c.Keeper.Name
		for _, p := range c.Losers {
			out += "; goes: " + p.Name
		}
		return out
	case "strays":
		waiting := d.CmdArgs[0].Vals
		var out []string
		for _, stray := range s.Strays(func(uid string) bool { return slices.Contains(waiting, uid) }) {
			for name, usage := range stray.Claims {
				out = append(out, name.String()+" "+usage.String())
			}
		}
		slices.Sort(out)
		return strings.Join(append([]string{"strays:"}, out...), " ")
	case "ending":
		s.api.ending[pod.UID] = true
		s.SetEnding(pod.UID)
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
	case "denominate":
		return s.gained(s.Denominate(pod.UID))
	case "preempt":
		req := request(t, pod, d.Input)
		candidates := slices.DeleteFunc(s.Holdings(req).On(node), func(v Victim) bool { return v.Priority >= pod.Priority })
		for _, a := range d.CmdArgs {
			for i := range candidates {
				candidates[i].Protected = candidates[i].Protected || a.Key == "protected" && slices.Contains(a.Vals, candidates[i].Name)
			}
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
		if gain := s.Nominate(pod, node, p.Assignment); !gain.Empty() {
			out += "\n" + s.gained(gain)
		}
		return out
	case "forget":
		return s.gained(s.Forget(pod.UID))
	case "remove":
		delete(s.api.bound, pod.UID)
		return s.gained(s.Remove(pod.UID))
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

// restart makes the ledger anew, as a new scheduler does: from pods, Instances and
// Configurations, in whichever order they come; but pods by UID, since that is the
// order in which a slot's holders are shown.
func (s *story) restart() {
	s.Ledger = New()
	for _, uid := range slices.Sorted(maps.Keys(s.api.bound)) {
		b := s.api.bound[uid]
		s.Observe(b.pod, b.node, b.a)
		if s.api.ending[uid] {
			s.SetEnding(uid)
		}
	}
	for _, in := range s.api.instances {
		s.SetInstance(in)
	}
	for _, c := range s.api.configurations {
		s.SetConfiguration(c)
	}
}

func lines(input string) []string {
	return strings.FieldsFunc(input, func(r rune) bool { return r == '\n' })
}

func request(t *testing.T, pod Pod, input string) *Request {
	req := &Request{Pod: pod}
	for _, line := range lines(input) {
		words := strings.Fields(line)
		c := ContainerRequest{}
		switch words[0] {
		case "init":
			c.Role, words = Init, words[1:]
		case "sidecar":
			c.Role, words = Sidecar, words[1:]
		}
		c.Name = words[0]
		for _, w := range words[1:] {
			name, count, _ := strings.Cut(w, "=")
			n, err := strconv.Atoi(count)
			if err != nil {
				t.Fatalf("request %q: %v", w, err)
			}
			c.Resources = append(c.Resources, ResourceRequest{Name: name, Count: n})
		}
		req.Containers = append(req.Containers, c)
	}
	return req
}

func show(a Assignment) string {
	var out []string
	for name, grants := range a {
		line := name + ":"
		for _, g := range grants {
			line += fmt.Sprintf(" %s/%d=%s", g.Resource, g.Ordinal, g.Slot)
		}
		out = append(out, line)
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

func (s *story) gained(g Gain) string {
	if g.Empty() {
		return "no gain"
	}
	var out []string
	if free := slices.Compact(slices.Sorted(slices.Values(g.Free))); len(free) > 0 {
		out = append(out, "gain: "+strings.Join(free, " "))
	}
	held := map[int32][]string{}
	for _, name := range g.Held {
		if price, ok := s.Price(name); ok {
			held[price] = append(held[price], name.String())
		} else {
			out = append(out, "no gain: "+name.String())
		}
	}
	for _, priority := range slices.Sorted(maps.Keys(held)) {
		out = append(out, fmt.Sprintf("gain above priority %d: %s", priority, strings.Join(slices.Compact(slices.Sorted(slices.Values(held[priority]))), " ")))
	}
	if len(g.Displaced) > 0 {
		out = append(out, "displaced: "+strings.Join(slices.Sorted(slices.Values(g.Displaced)), " "))
	}
	return strings.Join(out, "\n")
}

func (s *story) observed(conflicts []Conflict, g Gain) string {
	var out strings.Builder
	for _, c := range conflicts {
		fmt.Fprintf(&out, "conflict: %s is held by %s\n", c.Slot, c.Holder.Name)
	}
	return out.String() + s.gained(g)
}

func (l *Ledger) show() string {
	var out []string
	for _, d := range l.devices {
		for i, s := range d.known {
			state := "free"
			switch {
			case len(s.holders) > 0 && s.claim != "":
				state = fmt.Sprintf("held by %s, claimed %s", strings.Join(s.holders, " and "), s.claim)
			case len(s.holders) > 0:
				state = "held by " + strings.Join(s.holders, " and ")
			case s.claim != "":
				state = "claimed " + s.claim
			case d.waitsForNominee(i):
				state = "kept for " + s.nominee
			case !d.free.has(i):
				state = "out of capacity"
			}
			out = append(out, fmt.Sprintf("%s: %s", slot.Name{Instance: d.name, Index: i}, state))
		}
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}
