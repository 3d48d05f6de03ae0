package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeslot/kubeslot/test/cluster"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// A broker that fails is started again, after delays that double, its logs stay until
// then, and the controller that is killed meanwhile goes on counting.
func TestFailingBrokerBacksOff(t *testing.T) {
	testAll(t, "restarts the controller")
	r := newRig(t)
	watching, err := kube.CoreV1().Pods(r.ns).Watch(r.ctx, metav1.ListOptions{})
	r.check(err)
	defer watching.Stop()
	r.brokers("fail", 1, r.podBroker(brokerPod(func(p *v1.PodSpec) { p.RestartPolicy = v1.RestartPolicyNever }, "exit", "3")), nil, "fail0")
	type life struct{ created, gone time.Time }
	lives, order := map[types.UID]*life{}, []types.UID{}
	for len(order) < 4 { // that the delays double further is tested with a clock of its own
		select {
		case event := <-watching.ResultChan():
			p, ok := event.Object.(*v1.Pod)
			if !ok {
				t.Fatalf("the watch ended with %v", event.Object)
			}
			if lives[p.UID] == nil {
				lives[p.UID] = &life{created: time.Now()}
				if order = append(order, p.UID); len(order) == 3 {
					r.check(shared.Restart(cluster.Controller, ""))
				}
			}
			if event.Type == "DELETED" {
				lives[p.UID].gone = time.Now()
			}
		case <-time.After(patience):
			t.Fatalf("waited %s for a further broker after %d", patience, len(order))
		}
	}
	for i := 1; i < len(order); i++ {
		want := time.Second << (i - 1)
		if between := lives[order[i]].created.Sub(lives[order[i-1]].created); between < want*9/10 {
			t.Errorf("broker %d comes %s after the one before, want at least %s", i+1, between, want)
		}
		if gap := lives[order[i]].created.Sub(lives[order[i-1]].gone); gap > 3*time.Second {
			t.Errorf("broker %d was gone %s before its successor came: its logs were lost early", i, gap)
		}
	}
	list, err := kube.CoreV1().Pods(r.ns).List(r.ctx, metav1.ListOptions{})
	r.check(err)
	if len(list.Items) != 1 || list.Items[0].Annotations["kubeslot.io/broker-failures"] != "3" {
		t.Errorf("pods %d, the last after %q failures, want 3", len(list.Items), list.Items[0].Annotations["kubeslot.io/broker-failures"])
	}
	r.await("an Event that tells of it", func() (bool, string) {
		events, err := kube.CoreV1().Events(r.ns).List(r.ctx, metav1.ListOptions{FieldSelector: "reason=BrokerEnded"})
		r.check(err)
		return len(events.Items) > 0 && strings.Contains(events.Items[0].Message, "exit code 3"), fmt.Sprint(len(events.Items))
	})
}

// What cannot be: it is told, in the status and an Event, and harms nobody.
func TestBrokersThatCannotBe(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.withoutWebhook(func() { // which would refuse them
		r.brokers("unknown", 1, akriv0.BrokerSpec{BrokerPodSpec: &runtime.RawExtension{Raw: []byte(`{"containers":[{"name":"b","imagee":"x"}]}`)}}, nil, "bad0")
		r.brokers("refused", 1, akriv0.BrokerSpec{BrokerPodSpec: &runtime.RawExtension{Raw: []byte(`{"containers":[{"name":"UPPER"}]}`)}}, nil, "bad0")
		r.brokers("template", 1, akriv0.BrokerSpec{BrokerPodSpec: &runtime.RawExtension{Raw: []byte(`{"containers":[{"name":"b","image":"x","args":["{{NOPE}}"]}]}`)}}, nil, "bad0")
		r.brokers("slots", 1, r.podBroker(brokerPod(func(p *v1.PodSpec) {
			p.Containers[0].Resources.Limits["{{PLACEHOLDER}}"] = resource.MustParse("2")
		})), nil, "bad0")
	})
	r.brokers("image", 1, r.podBroker(brokerPod(func(p *v1.PodSpec) { p.Containers[0].Image = "kubeslot.test/none:1" })), nil, "bad0")
	stranger, err := kube.CoreV1().Services(r.ns).Create(r.ctx, &v1.Service{ObjectMeta: metav1.ObjectMeta{Name: "stranger-svc"}, Spec: v1.ServiceSpec{Ports: []v1.ServicePort{{Port: 1}}}}, metav1.CreateOptions{})
	r.check(err)
	r.Cleanup(func() { r.check(kube.CoreV1().Services(r.ns).Delete(r.ctx, stranger.Name, metav1.DeleteOptions{})) })
	r.brokers("stranger", 1, r.podBroker(brokerPod(nil)), func(c *akriv0.ConfigurationSpec) {
		c.ConfigurationServiceSpec = &runtime.RawExtension{Raw: []byte(`{"ports":[{"port":80}]}`)}
	}, "bad0")

	r.awaitProblem("unknown", "InvalidBrokerSpec", `unknown field "containers[0].imagee"`)
	r.awaitProblem("refused", "BrokerNotCreated", "spec.containers[0].name")
	r.awaitProblem("template", "UnknownTemplate", "{{NOPE}}", "containers[0].args[0]")
	r.awaitProblem("slots", "BrokerNeedsMoreSlots", "2 slots", "raise spec.capacity")
	r.await("an Event of each", func() (bool, string) {
		events, err := kube.CoreV1().Events(r.ns).List(r.ctx, metav1.ListOptions{})
		r.check(err)
		want := map[string]bool{"InvalidBrokerSpec": true, "BrokerNotCreated": true, "UnknownTemplate": true, "BrokerNeedsMoreSlots": true, "ServiceNameTaken": true}
		for _, e := range events.Items {
			delete(want, e.Reason)
		}
		return len(want) == 0, fmt.Sprintf("missing: %v", want)
	})
	after, err := kube.CoreV1().Services(r.ns).Get(r.ctx, stranger.Name, metav1.GetOptions{})
	r.check(err)
	if after.ResourceVersion != stranger.ResourceVersion {
		t.Errorf("a stranger's Service was changed: %+v", after)
	}
	list, err := kube.CoreV1().Pods(r.ns).List(r.ctx, metav1.ListOptions{LabelSelector: "akri.sh/configuration=image"})
	r.check(err)
	if len(list.Items) != 1 || list.Items[0].Status.Phase != v1.PodPending {
		t.Errorf("brokers whose image does not exist: %d", len(list.Items))
	}
}

// A node that is cut off keeps its slot as long as its broker may run: the successor
// waits, and no two brokers ever use the slot at once. A broker that needs no slot is
// moved within 5 seconds.
func TestBrokerOfANodeThatIsCutOff(t *testing.T) {
	testAll(t, "cuts a node off")
	r := newRig(t)
	spec, conflict := r.holdingBrokers()
	r.brokers("cut", 1, r.podBroker(spec), nil, "cut0")
	r.brokers("free", 1, r.podBroker(brokerPod(withoutDevice)), nil, "cut0")
	broker := func(configuration string) (node string) { return r.awaitBrokerCount(configuration, 1)[0].Spec.NodeName }
	cut := broker("cut")
	// Both are to be on the node: cordoning the other and deleting moves the free one.
	other := map[string]string{nodeA: nodeB, nodeB: nodeA}[cut]
	r.cordon(other, true)
	t.Cleanup(func() { r.cordon(other, false) })
	if broker("free") != cut {
		r.check(kube.CoreV1().Pods(r.ns).DeleteCollection(r.ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "akri.sh/configuration=free"}))
		r.await("the free broker to move", func() (bool, string) { node := broker("free"); return node == cut, node })
	}
	r.cordon(other, false)

	r.check(shared.Partition(cut))
	t.Cleanup(func() { r.check(shared.Heal(cut)); r.awaitReady(cut) })
	notReady := r.awaitNotReady(cut)
	moved := func(configuration string) string {
		name := other + "-" + r.instances(configuration)[0].Name + "-pod"
		r.awaitMade(name)
		return name
	}
	r.awaitRunning(moved("free"))
	if took := time.Since(notReady); took > time.Minute { // an eviction takes minutes
		t.Errorf("a broker that needs no slot runs on %s %s after its node was seen not Ready", other, took)
	}
	r.awaitPending(moved("cut"), "1 held")
	r.await("the broker on "+cut+" to be evicted, which its node cannot do", func() (bool, string) {
		p := r.pod(cut + "-" + r.instances("cut")[0].Name + "-pod")
		return p.DeletionTimestamp != nil, fmt.Sprint(p.Status.Phase)
	})
	claims := r.slotClaims("cut")
	if len(claims) != 1 || claims[0].Spec.NodeName != cut || r.pod(moved("cut")).Spec.NodeName != "" {
		t.Errorf("while the old broker may run: claims %+v, its successor on %q", claims, r.pod(moved("cut")).Spec.NodeName)
	}
	r.check(shared.Heal(cut))
	r.awaitRunning(moved("cut"))
	conflict()
	r.awaitReady(cut)
	r.awaitBrokerCount("free", 1) // the surplus one goes
}
