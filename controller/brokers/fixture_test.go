package brokers

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeslot/kubeslot/controller/inventory"
	"github.com/kubeslot/kubeslot/controller/naming"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

const instanceName = "cam-8120fe" // of the shared device foo0

var start = time.Unix(1_000_000_000, 0).UTC()

// onePod is a broker that uses its Instance's device.
const onePod = `{"containers":[{"name":"b","image":"i","resources":{"limits":{"{{PLACEHOLDER}}":"1"}}}]}`

func configuration(capacity int32, podSpec string) *akriv0.Configuration {
	c := &akriv0.Configuration{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "cam", UID: "cam-uid", Generation: 1},
		Spec:       akriv0.ConfigurationSpec{Capacity: capacity, BrokerProperties: map[string]string{"WIN": "configuration"}},
	}
	if podSpec != "" {
		c.Spec.BrokerSpec = &akriv0.BrokerSpec{BrokerPodSpec: &runtime.RawExtension{Raw: []byte(podSpec)}}
	}
	return c
}

func theInstance() *akriv0.Instance {
	return &akriv0.Instance{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: instanceName, UID: "instance-uid"},
		Spec: akriv0.InstanceSpec{ConfigurationName: "cam", Shared: true}}
}

// nodesOf reads nodes that reach the device from words, as "a b! c#": ! is not Ready, #
// cordoned, % gone, ~ tainted, ? does not know whether the device is there.
func nodesOf(text string) (reach []string, nodes map[string]inventory.Node, lost map[string]struct{}) {
	nodes, lost = map[string]inventory.Node{}, map[string]struct{}{}
	for _, word := range strings.Fields(text) {
		name := strings.TrimRight(word, "!#%~?")
		node := inventory.Node{UID: types.UID(name), Ready: !strings.Contains(word, "!"), Unschedulable: strings.Contains(word, "#"),
			Labels: map[string]string{"name": name}}
		if strings.Contains(word, "~") {
			node.Taints = []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoSchedule}}
		}
		reach = append(reach, name)
		if strings.Contains(word, "?") {
			lost[name] = struct{}{}
		}
		if !strings.Contains(word, "%") {
			nodes[name] = node
		}
	}
	slices.Sort(reach)
	return reach, nodes, lost
}

// newFacts are of an Instance of cam on the nodes, with pods as brokerPod has them.
func newFacts(t *testing.T, c *akriv0.Configuration, on string, pods ...func(*facts) *corev1.Pod) *facts {
	t.Helper()
	f := &facts{now: start, instance: theInstance(), configuration: c, spec: parse(c), reported: true, shared: true,
		properties: map[string]string{"K": "v", "WIN": "configuration"}}
	f.reach, f.nodes, f.lost = nodesOf(on)
	for _, make := range pods {
		f.pods = append(f.pods, make(f))
	}
	return f
}

// brokerPod is a broker on a node in a state: Pending, Bound, Starting, Ready,
// Failed, Succeeded; and the changes.
func brokerPod(node, state string, changes ...func(*corev1.Pod)) func(*facts) *corev1.Pod {
	return func(f *facts) *corev1.Pod {
		name := naming.Pod(instanceName, node, true)
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + node), CreationTimestamp: metav1.NewTime(start.Add(-time.Hour)),
			Labels: naming.PodLabels("cam", instanceName, node, name), Annotations: map[string]string{},
			OwnerReferences: []metav1.OwnerReference{naming.OwnedBy(instanceKind, f.instance)}}}
		if f.spec != nil && f.spec.pod != nil {
			p.Annotations[naming.SpecHash] = f.spec.hash
			if h := f.propertiesHash(); h != "" {
				p.Annotations[naming.PropertiesHash] = h
			}
		}
		if state != "Pending" {
			p.Spec.NodeName = node
		}
		switch state {
		case "Pending", "Bound":
			p.Status.Phase = corev1.PodPending
		case "Starting":
			p.Status.Phase = corev1.PodRunning
		case "Ready":
			p.Status.Phase = corev1.PodRunning
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		case "Failed", "Succeeded":
			p.Status.Phase = corev1.PodPhase(state)
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "b", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				ExitCode: 1, Reason: "Error", StartedAt: metav1.NewTime(start.Add(-3 * time.Second)), FinishedAt: metav1.NewTime(start)}}}}
		default:
			panic(state)
		}
		for _, change := range changes {
			change(p)
		}
		return p
	}
}

func going(p *corev1.Pod)  { p.DeletionTimestamp = &metav1.Time{Time: start} }
func former(p *corev1.Pod) { p.Annotations[naming.SpecHash] = "former" }
func akris(p *corev1.Pod)  { p.Annotations = nil }

func formerProperties(p *corev1.Pod) { p.Annotations[naming.PropertiesHash] = "former" }

func failedBefore(n int) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations[naming.Failures] = fmt.Sprint(n) }
}

// show is a plan in a line.
func (p plan) show() string {
	var words []string
	for _, r := range p.remove {
		words = append(words, "-"+r.pod.Spec.NodeName+"/"+r.pod.Name)
	}
	for _, r := range p.replace {
		words = append(words, "~"+r.node)
	}
	for _, pod := range p.adopt {
		words = append(words, "adopt "+pod.Name)
	}
	for _, pod := range p.create {
		words = append(words, "+"+pod.Labels[naming.TargetNode])
	}
	if p.after > 0 {
		words = append(words, "after "+p.after.String())
	}
	if p.problem != nil {
		words = append(words, "problem "+p.problem.Reason)
	}
	for i, w := range words { // the part of the name that is always there
		words[i] = strings.ReplaceAll(w, "-"+instanceName+"-pod", "")
	}
	return strings.Join(words, ", ")
}
