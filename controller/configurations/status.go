package configurations

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeslot/kubeslot/controller/brokers"
	"github.com/kubeslot/kubeslot/controller/inventory"
	"github.com/kubeslot/kubeslot/controller/limits"
	"github.com/kubeslot/kubeslot/controller/naming"
	"github.com/kubeslot/kubeslot/controller/validation"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// Reasons of conditions and problems.
const (
	devicesThere    = "DevicesFound"
	discovering     = "HandlerWorks"
	nothingReported = "NothingReported"
	nameTaken       = "NameTaken"
	invalidSpec     = "InvalidConfiguration"
	notVariables    = "PropertiesWithheld"
	reportsLeftOut  = "ReportsLeftOut"
	nodeProblem     = "NodeProblem"
	moreProblems    = "MoreProblems"
	allReady        = "AllReady"
	nothingToRun    = "NothingToRun"
	rollingOut      = "RollingOut"
	rolloutPaused   = "RolloutPaused"
	notReady        = "BrokersNotReady"
	brokerLimit     = "BrokerLimit"
	instanceLimit   = "InstanceLimit"
	notPublished    = "DevicesNotPublished"

	brokersDisabled  = "BrokersDisabled"
	servicesDisabled = "ServicesDisabled"
)

const maxMessageLength = 1024

// reasonPattern is what a condition's reason must be.
var reasonPattern = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`)

// status is what there is to say of a Configuration, given what its status says
// already, which is not changed. invalid is what is wrong with its spec, "" for nothing; dra what keeps its devices
// from being published for DRA. What kube-scheduler writes into the status stays.
func status(
	c *akriv0.Configuration, disabled Disabled, invalid string, dra []string, s inventory.Summary,
	instances limits.Sum, sum brokers.Sum, now time.Time,
) akriv0.ConfigurationStatus {
	st := akriv0.ConfigurationStatus{
		ObservedGeneration: c.Generation,
		Instances:          int32(s.Instances),
		Nodes:              int32(s.Nodes),
		Slots:              akriv0.SlotCount{Total: int32(s.Slots), Held: int32(s.Held)},
		Allocator:          c.Status.Allocator,
		Problems:           problems(c, disabled, invalid, dra, s, instances, sum),
	}
	conditions := []metav1.Condition{readyCondition(c, s, st.Problems), discoveringCondition(c, s)}
	if c.Spec.IsDRA() || c.Status.Allocator != nil {
		conditions = append(conditions, allocatorCondition(c))
	}
	if c.Spec.HasBroker() {
		st.Brokers = &akriv0.BrokerCount{Desired: int32(sum.Desired), Ready: int32(sum.Ready),
			Updated: int32(sum.Updated)}
		brokers := brokersCondition(c, s, sum)
		if disabled.Brokers {
			brokers.Status, brokers.Reason, brokers.Message = metav1.ConditionFalse, brokersDisabled, noBrokers
		}
		conditions = append(conditions, brokers)
		if ready := &conditions[0]; ready.Status == metav1.ConditionTrue && brokers.Status == metav1.ConditionFalse {
			ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, brokers.Reason, brokers.Message
		}
	}
	for _, condition := range conditions {
		if before := meta.FindStatusCondition(c.Status.Conditions, condition.Type); before != nil {
			st.Conditions = append(st.Conditions, *before)
		}
		condition.ObservedGeneration = c.Generation
		condition.Message = naming.CutText(condition.Message, maxMessageLength)
		condition.LastTransitionTime = metav1.NewTime(now.Truncate(time.Second)) // as the API keeps it
		meta.SetStatusCondition(&st.Conditions, condition)
	}
	return st
}

// takenBy says why a Configuration does not have its name.
func takenBy(name string, owner *akriv0.Configuration) string {
	if owner.Name != name {
		return fmt.Sprintf("Configuration %s/%s is older, and akri.sh/%s names an Instance that it has or may have: give this one another name, which does not end with a hyphen and %d hex digits",
			owner.Namespace, owner.Name, name, owner.Spec.HashDigits())
	}
	return fmt.Sprintf("Configuration %s/%s is older and has the name, which must be unique in the cluster, because akri.sh/%s has no namespace: rename one of them",
		owner.Namespace, owner.Name, owner.Name)
}

// readyCondition says in one word whether all is well; brokers apart. Properties that no
// container gets as variables keep no device from being found and given.
func readyCondition(c *akriv0.Configuration, s inventory.Summary, problems []akriv0.ConfigurationProblem) metav1.Condition {
	problems = slices.DeleteFunc(slices.Clone(problems), func(p akriv0.ConfigurationProblem) bool { return p.Reason == notVariables && p.Node == "" })
	condition := metav1.Condition{Type: akriv0.ConditionReady, Status: metav1.ConditionTrue, Reason: devicesThere,
		Message: found(c, s)}
	switch {
	case len(problems) > 0:
		first := problems[0]
		condition.Status, condition.Message = metav1.ConditionFalse, first.Message
		condition.Reason = conditionReason(first.Reason)
		if first.Node != "" {
			condition.Message = "node " + first.Node + ": " + first.Message
		}
	case s.Instances == 0:
		condition.Status, condition.Reason = metav1.ConditionUnknown, nothingReported
		condition.Message = nothingFound(s)
	}
	return condition
}

func discoveringCondition(c *akriv0.Configuration, s inventory.Summary) metav1.Condition {
	condition := metav1.Condition{Type: akriv0.ConditionDiscovering, Status: metav1.ConditionTrue, Reason: discovering}
	switch failing := nodesOf(s.Problems); {
	case s.TakenBy != nil:
		condition.Status, condition.Reason = metav1.ConditionFalse, nameTaken
		condition.Message = takenBy(c.Name, s.TakenBy)
	case failing > 0:
		first := s.Problems[0]
		condition.Status, condition.Reason = metav1.ConditionFalse, conditionReason(first.Reason)
		condition.Message = fmt.Sprintf("%s have problems; %s says: %s", count(failing, "node"), first.Node, first.Message)
		if failing == 1 {
			condition.Message = fmt.Sprintf("node %s: %s", first.Node, first.Message)
		}
	case s.Instances == 0:
		condition.Status, condition.Reason = metav1.ConditionUnknown, nothingReported
		condition.Message = nothingFound(s)
	default:
		condition.Message = found(c, s)
	}
	return condition
}

// conditionReason is a node's reason, unless the API server would refuse a status with it.
func conditionReason(reason string) string {
	if reasonPattern.MatchString(reason) {
		return reason
	}
	return nodeProblem
}

// nothingFound says that there is no device and no problem, and why where that is known.
func nothingFound(s inventory.Summary) string {
	if s.Nowhere {
		return "spec.handlerNodeSelector selects no node: correct it, or label the nodes where the handler runs"
	}
	return "no node reports a device, nor what keeps it from finding one"
}

// found says what was found, and how many nodes do not look for it.
func found(c *akriv0.Configuration, s inventory.Summary) string {
	text := fmt.Sprintf("%s found on %s", count(s.Instances, "device"), count(s.Nodes, "node"))
	if s.WithoutHandler > 0 {
		text += fmt.Sprintf("; %s without the handler %s (spec.handlerNodeSelector says where it has to run)", count(s.WithoutHandler, "node"), c.Spec.DiscoveryHandler.Name)
	}
	return text
}

func brokersCondition(c *akriv0.Configuration, s inventory.Summary, sum brokers.Sum) metav1.Condition {
	condition := metav1.Condition{Type: akriv0.ConditionBrokersReady, Status: metav1.ConditionTrue, Reason: allReady,
		Message: fmt.Sprintf("%d of %d brokers are ready", sum.Ready, sum.Desired)}
	switch {
	case s.TakenBy != nil, s.Instances == 0:
		condition.Status, condition.Reason = metav1.ConditionUnknown, nothingToRun
		condition.Message = "there is no Instance of this Configuration"
	case sum.Problem != nil:
		condition.Status, condition.Reason = metav1.ConditionFalse, sum.Problem.Reason
		condition.Message += "; " + brokerProblem(sum)
	case sum.Limit.Withheld > 0:
		condition.Status, condition.Reason = metav1.ConditionFalse, brokerLimit
		condition.Message += "; " + overBrokerLimit(c, sum.Limit)
	case sum.Outdated > 0:
		condition.Status, condition.Reason = metav1.ConditionFalse, rollingOut
		condition.Message += fmt.Sprintf("; %d are of an earlier spec", sum.Outdated)
		if c.Spec.BrokerUpdatePaused() {
			condition.Reason = rolloutPaused
			condition.Message += ", and stay, since spec.brokerUpdate.paused is true"
		}
	case sum.Ready < sum.Desired:
		condition.Status, condition.Reason = metav1.ConditionFalse, notReady
	}
	if condition.Status == metav1.ConditionFalse {
		condition.Message += brokerNotReady(c, sum)
	}
	return condition
}

// brokerNotReady says of one broker pod why it is not Ready, and how to see them all; ""
// when there is none.
func brokerNotReady(c *akriv0.Configuration, sum brokers.Sum) string {
	if sum.NotReady.Why == "" {
		return ""
	}
	return fmt.Sprintf("; pod %s: %s; see all with kubectl get pods -n %s -l %s=%s", sum.NotReady.Pod, sum.NotReady.Why, c.Namespace, akriv0.BrokerLabel, c.Name)
}

func brokerProblem(sum brokers.Sum) string {
	if sum.With == 1 {
		return fmt.Sprintf("Instance %s: %s", sum.FirstWith, sum.Problem.Message)
	}
	return fmt.Sprintf("%d Instances, the first is %s: %s", sum.With, sum.FirstWith, sum.Problem.Message)
}

// problems lists what is wrong. Nodes that have the same problem are one entry.
func problems(
	c *akriv0.Configuration, disabled Disabled, invalid string, dra []string, s inventory.Summary,
	instances limits.Sum, sum brokers.Sum,
) []akriv0.ConfigurationProblem {
	all := disabled.problems(c)
	add := func(reason, message string) {
		all = append(all, akriv0.ConfigurationProblem{Reason: reason, Message: message})
	}
	if invalid != "" {
		add(invalidSpec, invalid)
	}
	if withheld := validation.Withheld(&c.Spec); withheld != "" {
		add(notVariables, withheld)
	}
	if len(s.Withheld) > 0 {
		add(notVariables, fmt.Sprintf("no container gets these properties of its devices as variables of their names, "+
			"since spec.propertyPrefixes does not let it: %s. "+
			"Containers have them as <NAME>_<HASH> and in AKRI_DEVICES", strings.Join(s.Withheld, ", ")))
	}
	if s.TakenBy != nil {
		add(nameTaken, takenBy(c.Name, s.TakenBy))
	}
	for _, message := range dra {
		add(notPublished, message)
	}
	if instances.Withheld > 0 && s.TakenBy == nil {
		add(instanceLimit, overInstanceLimit(c, instances))
	}
	if sum.Limit.Withheld > 0 && c.Spec.HasBroker() && s.TakenBy == nil {
		add(brokerLimit, overBrokerLimit(c, sum.Limit))
	}
	if sum.Problem != nil && c.Spec.HasBroker() {
		add(sum.Problem.Reason, brokerProblem(sum))
	}
	if c.Spec.HasBroker() && sum.Problem == nil &&
		sum.NotReady.Failing { // one that only starts, or waits for a node, is no problem
		if condition := brokersCondition(c, s, sum); condition.Status == metav1.ConditionFalse {
			add(notReady, condition.Message)
		}
	}
	if s.LeftOut > 0 {
		add(reportsLeftOut, fmt.Sprintf("%s of devices left out; the first: %s",
			count(s.LeftOut, "report"), s.FirstLeftOut))
	}
	all = append(all, byNode(s.Problems)...)
	if len(all) > akriv0.MaxConfigurationProblems {
		left := len(all) - akriv0.MaxConfigurationProblems + 1
		all = append(all[:akriv0.MaxConfigurationProblems-1], akriv0.ConfigurationProblem{
			Reason: moreProblems, Message: fmt.Sprintf("there are %d more problems: see the DeviceSlices of the nodes", left)})
	}
	for i := range all {
		all[i].Message = naming.CutText(all[i].Message, maxMessageLength)
	}
	return all
}

// byNode makes one entry of equal problems of several nodes, under the first node's
// name.
func byNode(of []inventory.NodeProblem) []akriv0.ConfigurationProblem {
	sorted := slices.Clone(of)
	slices.SortStableFunc(sorted, func(a, b inventory.NodeProblem) int {
		return cmp.Or(cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Message, b.Message), cmp.Compare(a.Node, b.Node))
	})
	var all []akriv0.ConfigurationProblem
	for _, p := range sorted {
		if n := len(all); n > 0 && all[n-1].Reason == p.Reason && all[n-1].Message == p.Message {
			all[n-1].Count = max(all[n-1].Count, 1) + 1
			continue
		}
		all = append(all, akriv0.ConfigurationProblem{Node: p.Node, Reason: p.Reason, Message: p.Message})
	}
	slices.SortStableFunc(all, func(a, b akriv0.ConfigurationProblem) int { return cmp.Compare(a.Node, b.Node) })
	return all
}

func nodesOf(problems []inventory.NodeProblem) int {
	n := 0
	for i, p := range problems { // sorted by node
		if i == 0 || problems[i-1].Node != p.Node {
			n++
		}
	}
	return n
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
