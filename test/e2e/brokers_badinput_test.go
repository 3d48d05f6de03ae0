package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// withoutDevice makes a broker request no device.
func withoutDevice(p *v1.PodSpec) { p.Containers[0].Resources = v1.ResourceRequirements{} }

// brokerPods lists a Configuration's broker pods.
func (r *rig) brokerPods(configuration string) []v1.Pod {
	r.Helper()
	list, err := kube.CoreV1().Pods(r.ns).List(r.ctx, metav1.ListOptions{LabelSelector: "akri.sh/configuration=" + configuration})
	r.check(err)
	return list.Items
}

// awaitBrokerCount waits until the Configuration has exactly so many brokers, all Ready.
func (r *rig) awaitBrokerCount(configuration string, n int) []v1.Pod {
	r.Helper()
	var pods []v1.Pod
	r.await(fmt.Sprintf("%d brokers of %s, all Ready", n, configuration), func() (bool, string) {
		pods = r.brokerPods(configuration)
		seen := ""
		for i := range pods {
			seen += fmt.Sprintf("%s %s ready=%v; ", pods[i].Name, pods[i].Status.Phase, isReady(&pods[i]))
		}
		return len(pods) == n && !slices.ContainsFunc(pods, func(p v1.Pod) bool { return !isReady(&p) || p.DeletionTimestamp != nil }), seen
	})
	return pods
}

// awaitEventOf waits for an Event of any object of the namespace, with the reason and
// these parts in its message.
func (r *rig) awaitEventOf(reason string, parts ...string) {
	r.Helper()
	r.await(fmt.Sprintf("an Event %s with %q", reason, parts), func() (bool, string) {
		events, err := kube.CoreV1().Events(r.ns).List(r.ctx, metav1.ListOptions{FieldSelector: "reason=" + reason})
		r.check(err)
		seen := ""
		for _, e := range events.Items {
			if containsAll(e.Message, parts) {
				return true, ""
			}
			seen += e.Message + "\n"
		}
		return false, seen
	})
}

func (r *rig) awaitNoProblem(configuration string) {
	r.Helper()
	r.await("no problem of "+configuration, func() (bool, string) {
		s := r.status(configuration)
		return len(s.Problems) == 0, fmt.Sprint(s.Problems)
	})
}

// Brokers that the API server refuses are told of, tried again with delays, and there
// once they are allowed: a ResourceQuota that is full, a policy of the namespace.
func TestBrokersThatAreRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	_, err := kube.CoreV1().ResourceQuotas(r.ns).Create(r.ctx, &v1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "full"},
		Spec: v1.ResourceQuotaSpec{Hard: v1.ResourceList{"pods": resource.MustParse("1"), "services": resource.MustParse("1")}}}, metav1.CreateOptions{})
	r.check(err)
	r.await("the quota to be in force", func() (bool, string) {
		q, err := kube.CoreV1().ResourceQuotas(r.ns).Get(r.ctx, "full", metav1.GetOptions{})
		r.check(err)
		return len(q.Status.Hard) == 2, fmt.Sprint(q.Status)
	})
	r.brokers("quota", 2, r.podBroker(brokerPod(nil)), func(c *akriv0.ConfigurationSpec) {
		c.InstanceServiceSpec = &runtime.RawExtension{Raw: []byte(`{"ports":[{"port":80}]}`)}
		c.ConfigurationServiceSpec = c.InstanceServiceSpec
	}, "quota0")
	r.awaitProblem("quota", "BrokerNotCreated", "exceeded quota: full")
	r.awaitEventOf("BrokerNotCreated", "exceeded quota: full")
	r.awaitEventOf("ServiceNotWritten", "exceeded quota: full")
	first := r.awaitBrokerCount("quota", 1)[0]
	r.await("the status to count the one", func() (bool, string) {
		s := r.status("quota")
		return countsBrokers(s, 2, 1) && condition(s, akriv0.ConditionBrokersReady).Reason == "BrokerNotCreated",
			fmt.Sprintf("%+v", s)
	})
	refusedBefore := r.refusals("pods")
	r.check(kube.CoreV1().ResourceQuotas(r.ns).Delete(r.ctx, "full", metav1.DeleteOptions{}))
	if again := r.awaitBrokerCount("quota", 2); !slices.ContainsFunc(again, func(p v1.Pod) bool { return p.UID == first.UID }) {
		t.Error("the broker that ran was replaced")
	}
	if refusedBefore < 1 || refusedBefore > 12 {
		t.Errorf("the API server refused %d tries to create a pod, want them to be spaced", refusedBefore)
	}
	r.awaitNoProblem("quota")
	r.await("both Services", func() (bool, string) {
		s, err := kube.CoreV1().Services(r.ns).List(r.ctx, metav1.ListOptions{})
		r.check(err)
		return len(s.Items) == 2, fmt.Sprint(len(s.Items))
	})

	// Pod security of the namespace holds for brokers, too.
	label := func(value string) {
		_, err := kube.CoreV1().Namespaces().Patch(r.ctx, r.ns, types.MergePatchType, []byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":`+value+`}}}`), metav1.PatchOptions{})
		r.check(err)
	}
	label(`"restricted"`)
	r.brokers("unsafe", 1, r.podBroker(brokerPod(func(p *v1.PodSpec) { p.HostNetwork = true })), nil, "unsafe0")
	r.awaitProblem("unsafe", "BrokerNotCreated", `violates PodSecurity "restricted`)
	label("null")
	r.awaitBrokerCount("unsafe", 1)
	r.awaitNoProblem("unsafe")
}

// refusals counts what the API server refused the controller to create, in the test's
// namespace.
func (r *rig) refusals(resource string) (n int) {
	r.Helper()
	for _, e := range auditEvents(r) {
		if e.User.Username == controllerUser && e.Verb == "create" && e.ObjectRef.Resource == resource && e.ObjectRef.Namespace == r.ns && e.ResponseStatus.Code == 403 {
			n++
		}
	}
	return n
}

// Of two Configurations of one name the older has the devices and brokers; the other says
// so, and gets them when the older one goes.
func TestBrokersOfOneNameInTwoNamespaces(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.brokers("twice", 1, r.podBroker(brokerPod(nil)), nil, "twice0")
	mine := r.awaitBrokerCount("twice", 1)[0]
	t.Run("other", func(t *testing.T) {
		other := newRig(t)
		other.brokers("twice", 1, other.podBroker(brokerPod(nil)), nil, "twice0")
		other.awaitProblem("twice", "NameTaken", "Configuration "+r.ns+"/twice is older", "rename one of them")
		other.await("the condition to say that there is nothing to run", func() (bool, string) {
			c := condition(other.status("twice"), akriv0.ConditionBrokersReady)
			return c.Reason == "NothingToRun" && c.Status == metav1.ConditionUnknown, fmt.Sprintf("%+v", c)
		})
		if pods := other.brokerPods("twice"); len(pods) > 0 || len(other.instances("twice")) > 0 {
			t.Errorf("the younger has pods %v and Instances %v", pods, other.instances("twice"))
		}
		if p := r.awaitBrokerCount("twice", 1)[0]; p.UID != mine.UID {
			t.Errorf("the broker of the older was replaced: %s, was %s", p.UID, mine.UID)
		}
		r.check(akri.AkriV0().Configurations(r.ns).Delete(r.ctx, "twice", metav1.DeleteOptions{}))
		other.awaitBrokerCount("twice", 1)
		other.awaitNoProblem("twice")
		r.nothingLeft()
	})
}

// A Configuration that is deleted while its brokers come to be, at whatever stage, leaves
// nothing, and made again has its brokers.
func TestDeletedWhileBrokersStart(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	if node, err := kube.CoreV1().Nodes().Get(r.ctx, nodeA, metav1.GetOptions{}); err != nil || node.Spec.Unschedulable {
		t.Fatalf("node %v, %v", node, err)
	}
	some := func(of func(v1.Pod) bool) func() (bool, string) {
		return func() (bool, string) {
			pods := r.brokerPods("brief")
			return slices.ContainsFunc(pods, of), fmt.Sprint(len(pods))
		}
	}
	for _, stage := range []struct {
		name    string
		reached func() (bool, string)
	}{
		{"nothing", func() (bool, string) { return true, "" }},
		{"an Instance", func() (bool, string) { in := r.instances("brief"); return len(in) > 0, "" }},
		{"a pod", some(func(v1.Pod) bool { return true })},
		{"a pod that is bound", some(func(p v1.Pod) bool { return p.Spec.NodeName != "" })},
		{"a claim", func() (bool, string) { c := r.claims("brief"); return len(c) > 0, fmt.Sprint(c) }},
		{"a pod that runs", some(func(p v1.Pod) bool { return p.Status.Phase == v1.PodRunning })},
		{"a Service", func() (bool, string) {
			s, err := kube.CoreV1().Services(r.ns).List(r.ctx, metav1.ListOptions{})
			r.check(err)
			return len(s.Items) > 0, ""
		}},
	} {
		c := akriv0.ConfigurationSpec{DiscoveryHandler: akriv0.DiscoveryHandlerInfo{Name: "debugEcho", DiscoveryDetails: `{"descriptions":["brief0","brief1"]}`}, Capacity: 2}
		spec := r.podBroker(brokerPod(nil))
		c.BrokerSpec = &spec
		c.InstanceServiceSpec = &runtime.RawExtension{Raw: []byte(`{"ports":[{"port":80}]}`)}
		c.ConfigurationServiceSpec = c.InstanceServiceSpec
		r.check(r.createConfiguration("brief", c))
		r.await(stage.name, stage.reached)
		r.check(akri.AkriV0().Configurations(r.ns).Delete(r.ctx, "brief", metav1.DeleteOptions{}))
		r.nothingLeft()
		r.awaitClaims("brief", map[string]holding{})
	}
	r.brokers("brief", 2, r.podBroker(brokerPod(nil)), nil, "brief0", "brief1")
	r.awaitBrokerCount("brief", 4)
}

// What a spec says of nodes holds, on the broker's one node; a broker without device runs,
// with a warning; one may ask for further devices of its Configuration.
func TestWhatBrokersAskFor(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	term := func(key string, values ...string) v1.NodeSelectorTerm {
		return v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{{Key: key, Operator: v1.NodeSelectorOpIn, Values: values}}}
	}
	r.brokers("there", 2, r.podBroker(brokerPod(func(p *v1.PodSpec) {
		// In Akri either term would let both brokers run on either node.
		p.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{
			NodeSelectorTerms: []v1.NodeSelectorTerm{term("no/such", "label"), term(v1.LabelHostname, nodeA, nodeB)}}}}
	})), nil, "there0")
	r.brokers("bare", 2, r.podBroker(brokerPod(withoutDevice)), nil, "bare0")
	r.brokers("pair", 4, r.podBroker(brokerPod(func(p *v1.PodSpec) {
		p.Containers[0].Resources.Limits["akri.sh/pair"] = resource.MustParse("1")
	})), nil, "pair0", "pair1")

	for _, p := range r.awaitBrokerCount("there", 2) {
		if node := p.Labels["akri.sh/target-node"]; p.Spec.NodeName != node || !strings.HasPrefix(p.Name, node+"-") {
			t.Errorf("broker %s of %s runs on %s", p.Name, node, p.Spec.NodeName)
		}
	}
	for _, p := range r.awaitBrokerCount("bare", 2) {
		if env := r.env(p.Name); env["AKRI_DEVICES"] != "" {
			t.Errorf("broker %s, which requests no device, has %s", p.Name, env["AKRI_DEVICES"])
		}
	}
	r.awaitEventOf("BrokerWithoutDevice", "{{PLACEHOLDER}}")
	if claims := r.claims("bare"); len(claims) > 0 {
		t.Errorf("brokers that request no device hold %v", claims)
	}
	for _, p := range r.awaitBrokerCount("pair", 4) {
		var devices []struct{ Instance string }
		r.check(json.Unmarshal([]byte(r.env(p.Name)["AKRI_DEVICES"]), &devices))
		if len(devices) != 2 || devices[0] == devices[1] || !slices.ContainsFunc(devices, func(d struct{ Instance string }) bool { return d.Instance == p.Labels["akri.sh/instance"] }) {
			t.Errorf("broker %s has the devices %v, want its own and another", p.Name, devices)
		}
	}
}

// A broker that its node does not admit is started again with the delays of one that
// fails, and its predecessor stays until then.
func TestBrokersThatNodesDoNotAdmit(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.brokers("big", 1, r.podBroker(brokerPod(func(p *v1.PodSpec) {
		withoutDevice(p)
		p.SchedulerName = "nobody" // the test binds, as a scheduler that is mistaken
		p.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("1000")}
	})), nil, "big0")
	// One node may report it before the other: which of them has the broker is settled then.
	r.await("both nodes to have the device, and one broker", func() (bool, string) {
		list, err := akri.AkriV0().Instances(r.ns).List(r.ctx, metav1.ListOptions{})
		r.check(err)
		pods := r.brokerPods("big")
		return len(list.Items) == 1 && len(list.Items[0].Spec.Nodes) == 2 && len(pods) == 1, fmt.Sprint(list.Items, len(pods))
	})
	var last v1.Pod
	bound := time.Time{} // it ends then, or later
	for failures := range 4 {
		r.await(fmt.Sprintf("broker %d", failures+1), func() (bool, string) {
			pods := r.brokerPods("big")
			if len(pods) != 1 {
				return false, fmt.Sprint(len(pods))
			}
			fresh := pods[0].UID != last.UID
			last = pods[0]
			return fresh, string(last.Status.Phase)
		})
		if failures > 0 {
			if want, waited := time.Second<<(failures-1), last.CreationTimestamp.Sub(bound); waited < want {
				t.Errorf("broker %d comes %s after the one before was bound, want %s", failures+1, waited, want)
			}
			if got := last.Annotations["kubeslot.io/broker-failures"]; got != fmt.Sprint(failures) {
				t.Errorf("broker %d: %q failures before, want %d", failures+1, got, failures)
			}
		}
		node := last.Labels["akri.sh/target-node"]
		bound = time.Now().Truncate(time.Second)
		r.check(kube.CoreV1().Pods(r.ns).Bind(r.ctx, &v1.Binding{ObjectMeta: metav1.ObjectMeta{Name: last.Name}, Target: v1.ObjectReference{Kind: "Node", Name: node}}, metav1.CreateOptions{}))
	}
	r.awaitEventOf("BrokerEnded", "OutOfcpu")
}

// Names and labels fit, however long the names of the node and the Configuration are.
func TestLongNamesOfBrokers(t *testing.T) {
	testAll(t, "adds a node")
	r := newRig(t)
	label := strings.Repeat("n", 62) + "."
	node := strings.Repeat(label, 4) + "x" // 253 characters, the longest that there is
	configuration := strings.Repeat("c", 56)
	amounts := v1.ResourceList{v1.ResourcePods: resource.MustParse("10")}
	ready := []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue, LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now()}}
	n, err := kube.CoreV1().Nodes().Create(r.ctx, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}, Status: v1.NodeStatus{Allocatable: amounts, Capacity: amounts, Conditions: ready}}, metav1.CreateOptions{})
	r.check(err)
	t.Cleanup(func() { r.check(kube.CoreV1().Nodes().Delete(context.Background(), node, metav1.DeleteOptions{})) })
	r.brokers(configuration, 3, r.podBroker(brokerPod(func(p *v1.PodSpec) {
		withoutDevice(p)
		p.SchedulerName = "nobody"
		p.Tolerations = []v1.Toleration{{Operator: v1.TolerationOpExists}}
	})), nil, "long0")
	in := r.awaitInstance(configuration, nodeA, nodeB)
	_, err = akri.KubeslotV1alpha1().DeviceSlices().Create(r.ctx, &v1alpha1.DeviceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "long-0", OwnerReferences: []metav1.OwnerReference{v1alpha1.NodeOwner(node, n.UID)}},
		Spec: v1alpha1.DeviceSliceSpec{NodeName: node, Devices: []v1alpha1.Device{{
			Configuration: v1alpha1.ConfigurationReference{Namespace: r.ns, Name: configuration}, ID: "long0", Shared: true, Hash: in.Name[len(configuration)+1:]}}}}, metav1.CreateOptions{})
	r.check(err)
	r.await("three brokers", func() (bool, string) {
		pods := r.brokerPods(configuration)
		return len(pods) == 3, fmt.Sprint(len(pods))
	})
	names := map[string]bool{}
	for _, p := range r.brokerPods(configuration) {
		names[p.Name] = true
		if len(p.Name) > validation.DNS1123LabelMaxLength || len(p.Labels) != 5 || p.Labels["akri.sh/instance"] != in.Name {
			t.Errorf("pod %s with labels %v", p.Name, p.Labels)
		}
		pinned := p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields[0].Values[0]
		if len(pinned) == len(node) && (pinned != node || p.Labels["akri.sh/target-node"] == "" || len(p.Labels["akri.sh/target-node"]) > validation.LabelValueMaxLength) {
			t.Errorf("pod %s is pinned to %s and labelled %v", p.Name, pinned, p.Labels)
		}
	}
	if len(names) != 3 {
		t.Errorf("names %v", names)
	}
	r.check(akri.KubeslotV1alpha1().DeviceSlices().Delete(r.ctx, "long-0", metav1.DeleteOptions{}))
}
