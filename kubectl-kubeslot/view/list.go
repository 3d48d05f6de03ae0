package view

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// Counts are how many slots are in use. Those beyond a capacity that was lowered are among none of them, as in
// status.slots of a Configuration.
type Counts struct {
	Slots int `json:"slots"`
	Free  int `json:"free"`
	// Assigned are those that the scheduler gave to pods, and that no node has claimed for a container.
	Assigned int `json:"assigned"`
	// Held are those that nodes have claimed: Slots is the sum of the three.
	Held int `json:"held"`
}

func (c *Counts) add(o Counts) {
	c.Slots, c.Free, c.Assigned, c.Held = c.Slots+o.Slots, c.Free+o.Free, c.Assigned+o.Assigned, c.Held+o.Held
}

// counts are those of the Instance.
func (v *View) counts(in *akriv0.Instance) Counts {
	c, taken := Counts{Slots: v.capacity(in), Free: v.capacity(in)}, v.taken(in)
	for i := range taken {
		switch s := &taken[i]; {
		case s.BeyondCapacity:
			continue
		case s.State == Held:
			c.Held++
		default:
			c.Assigned++
		}
		c.Free--
	}
	return c
}

// Configuration is a row of what there is of a Configuration.
type Configuration struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Handler   string `json:"handler"`
	Instances int    `json:"instances"`
	Counts
	Waiting  int      `json:"waiting"` // pods
	Nodes    int      `json:"nodes"`
	Problems []string `json:"problems,omitempty"`
	// Ready, Instances and Nodes are what the status says, as kubectl get shows it; until the controller has
	// seen the last change of the Configuration, whether devices are found and nothing is wrong.
	Ready bool `json:"ready"`
	// Allocator is who gives the devices: Slots or DRA; AllocatorChange is set until it gives all of them.
	Allocator       akriv0.Allocator  `json:"allocator,omitempty"`
	AllocatorChange *AllocatorChange  `json:"allocatorChange,omitempty"`
	Labels          map[string]string `json:"labels,omitempty"`
}

// AllocatorChange is a change of the allocator that is under way.
type AllocatorChange struct {
	From akriv0.Allocator `json:"from"`
	To   akriv0.Allocator `json:"to"`
	// Begun is whether the scheduler has handed the devices over but for Held Instances, of which somebody has
	// slots by the former allocator.
	Begun bool  `json:"begun"`
	Held  int32 `json:"held"`
}

// text says how far the change has come.
func (a *AllocatorChange) text() string {
	if !a.Begun {
		return fmt.Sprintf("the allocator changes from %s to %s, which kube-scheduler of Kubeslot has not begun: "+
			"look whether it runs", a.From, a.To)
	}
	return fmt.Sprintf("the allocator changes from %s to %s: %s still held by users of %s", a.From, a.To,
		counted(int(a.Held), "Instance is", "Instances are"), a.From)
}

// Configurations returns a row for each Configuration, by namespace and name, and for those that were
// deleted while pods had their slots.
func (v *View) Configurations() []Configuration {
	waiting := v.waiting()
	var rows []Configuration
	for i := range v.objects.Configurations {
		c := &v.objects.Configurations[i]
		row := Configuration{Namespace: c.Namespace, Name: c.Name, Handler: c.Spec.DiscoveryHandler.Name, Problems: v.problems(c), Labels: c.Labels}
		if v.configurations[c.Name] == c {
			nodes, taken := map[string]bool{}, 0
			for _, in := range v.of[c.Name] {
				row.Instances++
				row.add(v.counts(in))
				taken += len(v.taken(in))
				for _, node := range v.nodes(in) {
					nodes[node] = true
				}
			}
			row.Nodes, row.Waiting = len(nodes), waiting[c.Name]
			row.Ready = row.Nodes > 0 && len(row.Problems) == 0
			if beyond := taken - row.Assigned - row.Held; beyond > 0 {
				row.Problems = append(row.Problems, fmt.Sprintf("CapacityLowered: the capacity is %d, and %s in use", c.Spec.Slots(), counted(beyond, "slot beyond it is", "slots beyond it are")))
			}
		}
		if ready := meta.FindStatusCondition(c.Status.Conditions, akriv0.ConditionReady); ready != nil && ready.ObservedGeneration == c.Generation {
			row.Ready, row.Instances, row.Nodes = ready.Status == metav1.ConditionTrue, int(c.Status.Instances), int(c.Status.Nodes)
		}
		if text := rollout(c); text != "" {
			row.Problems = append(row.Problems, text)
		}
		if row.Allocator, row.AllocatorChange = allocator(c); row.AllocatorChange != nil {
			row.Problems = append(row.Problems, "AllocatorChanging: "+row.AllocatorChange.text())
		}
		rows = append(rows, row)
	}
	for _, d := range v.deleted() {
		rows = append(rows, d.row())
	}
	slices.SortFunc(rows, func(a, b Configuration) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return rows
}

// rollout says how far a roll-out of brokers has come; "" when there is none.
func rollout(c *akriv0.Configuration) string {
	is := meta.FindStatusCondition(c.Status.Conditions, akriv0.ConditionBrokersReady)
	if is == nil || is.ObservedGeneration != c.Generation || c.Status.Brokers == nil {
		return ""
	}
	progress := fmt.Sprintf("%d of %d brokers are updated", c.Status.Brokers.Updated, c.Status.Brokers.Desired)
	switch is.Reason {
	case "RollingOut":
		return is.Reason + ": " + progress
	case "RolloutPaused":
		return is.Reason + ": " + progress + "; the others stay, since spec.brokerUpdate.paused is true"
	}
	return ""
}

// problems are what nodes and the controller say is wrong with the Configuration.
func (v *View) problems(c *akriv0.Configuration) []string {
	var all []string
	for _, p := range v.reasonedProblems(c) {
		all = append(all, p.text)
	}
	return all
}

// reasonedProblem is a problem of a Configuration with its reason.
type reasonedProblem struct{ reason, text string }

// reasonedProblems are the problems by their texts, each of them once: thousands of nodes may have one.
func (v *View) reasonedProblems(c *akriv0.Configuration) []reasonedProblem {
	var all []reasonedProblem
	add := func(reason, text string) { all = append(all, reasonedProblem{reason, text}) }
	switch owner := v.oldest.ResourceOwner(c.Name); {
	case owner == nil, owner == c, saysTaken(c, owner):
	case owner.Name == c.Name:
		add(nameTaken, fmt.Sprintf("the Configuration of this name in namespace %s is older and has the name", owner.Namespace))
	default:
		add(nameTaken, fmt.Sprintf("Configuration %s/%s is older and has or may have an Instance of this name", owner.Namespace, owner.Name))
	}
	of := v1alpha1.ConfigurationReference{Namespace: c.Namespace, Name: c.Name}
	said := v.said()[of]
	without := map[string]bool{}
	for _, p := range said {
		if p.Reason == v1alpha1.UnknownHandler {
			without[p.node] = true
		}
	}
	handler := v1alpha1.LacksHandler(len(without), len(v.reporting), c.Spec.HandlerOnEach())
	type problem struct{ reason, message string }
	nodes := map[problem]sets.Set[string]{} // that have it; of the Configuration itself ""
	note := func(node, reason, message string) {
		p := problem{reason, message}
		if nodes[p] == nil {
			nodes[p] = sets.New[string]()
		}
		nodes[p].Insert(node)
	}
	for _, p := range said {
		if handler || p.Reason != v1alpha1.UnknownHandler {
			note(p.node, p.Reason, p.Message)
		}
	}
	for _, p := range c.Status.Problems {
		note(p.Node, p.Reason, p.Message)
	}
	for p, on := range nodes {
		text := p.reason + ": " + p.message
		if on.Has("") {
			add(p.reason, text)
		}
		if on.Delete(""); len(on) > 0 {
			add(p.reason, ofNodes(sets.List(on))+": "+text)
		}
	}
	slices.SortFunc(all, func(a, b reasonedProblem) int { return cmp.Compare(a.text, b.text) })
	return all
}

// nodeProblem is what one node says of a Configuration.
type nodeProblem struct {
	node string
	*v1alpha1.Problem
}

// nodesSay is what nodes say of each Configuration.
func (v *View) nodesSay() map[v1alpha1.ConfigurationReference][]nodeProblem {
	all := map[v1alpha1.ConfigurationReference][]nodeProblem{}
	for i := range v.objects.Slices {
		s := &v.objects.Slices[i]
		for j := range s.Spec.Problems {
			if p := &s.Spec.Problems[j]; p.Configuration != nil {
				all[*p.Configuration] = append(all[*p.Configuration], nodeProblem{s.Spec.NodeName, p})
			}
		}
	}
	return all
}

// nameTaken is the controller's reason for a name that an older Configuration has.
const nameTaken = "NameTaken"

// saysTaken reports whether the Configuration's status says that the owner has its name.
func saysTaken(c, owner *akriv0.Configuration) bool {
	return slices.ContainsFunc(c.Status.Problems, func(p akriv0.ConfigurationProblem) bool {
		return p.Reason == nameTaken && strings.HasPrefix(p.Message, "Configuration "+owner.Namespace+"/"+owner.Name+" ")
	})
}

// Waiting are the pods that ask for devices and have no node.
func (v *View) Waiting() []*corev1.Pod {
	var all []*corev1.Pod
	for i := range v.objects.Pods {
		pod := &v.objects.Pods[i]
		if pod.Spec.NodeName == "" && !ended(pod) && (Asks(pod) || len(v.podClaims(pod)) > 0) {
			all = append(all, pod)
		}
	}
	return all
}

// waiting counts, by Configuration, the pods that ask for its devices and have no node.
func (v *View) waiting() map[string]int {
	count := map[string]int{}
	for _, pod := range v.Waiting() {
		asked := map[string]bool{}
		for _, claim := range v.podClaims(pod) {
			for _, r := range classesOf(claim.ResourceClaim) {
				asked[r.configuration()] = true
			}
		}
		for _, r := range requests(pod) {
			asked[v.configurationOf(r.resource)] = true
		}
		for name := range asked {
			count[name]++
		}
	}
	return count
}

// configurationOf is the Configuration of the resource, which is named without prefix.
func (v *View) configurationOf(resource string) string {
	if v.configurations[resource] != nil {
		return resource
	}
	if in := v.instances[resource]; in != nil {
		return in.Spec.ConfigurationName
	}
	return resource
}

// Instance is a row of one device.
type Instance struct {
	Namespace     string   `json:"namespace"`
	Name          string   `json:"name"`
	Configuration string   `json:"configuration"`
	Device        string   `json:"device,omitempty"` // the handler's id of it
	Shared        bool     `json:"shared"`
	Nodes         []string `json:"nodes"`
	Lost          []string `json:"lost,omitempty"` // nodes whose handler does not answer
	Capacity      int      `json:"capacity"`
	Counts
	Properties map[string]string `json:"properties,omitempty"`
	Problems   []string          `json:"problems,omitempty"`
	Labels     map[string]string `json:"labels,omitempty"`
}

// Instances returns a row for each Instance, by Configuration and name.
func (v *View) Instances() []Instance {
	var rows []Instance
	for _, name := range slices.Sorted(maps.Keys(v.of)) {
		for _, in := range v.of[name] {
			rows = append(rows, Instance{Namespace: in.Namespace, Name: in.Name, Configuration: name,
				Device: v.deviceID(in), Shared: in.Spec.Shared, Nodes: v.nodes(in), Lost: v.lost(in),
				Capacity: v.capacity(in), Counts: v.counts(in), Properties: in.Spec.BrokerProperties,
				Problems: in.Status.Problems, Labels: in.Labels})
		}
	}
	return rows
}
