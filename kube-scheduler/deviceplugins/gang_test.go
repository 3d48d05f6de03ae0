package deviceplugins

import (
	"context"
	"testing"

	v1 "k8s.io/api/core/v1"
	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes/fake"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/kubernetes/pkg/features"

	"github.com/kubeslot/kubeslot/types/assignment"
)

// A gang of three, and room for two: upstream's scheduler reserves two, is refused
// the third and reverts. A pod that needs both gets them, and when it is gone and
// there is room for a third, all of the gang run.
func TestGang(t *testing.T) {
	featuregatetesting.SetFeatureGatesDuringTest(t, utilfeature.DefaultFeatureGate,
		featuregatetesting.FeatureOverrides{features.GenericWorkload: true, features.GangScheduling: true})
	ctx, name := context.Background(), "g"
	group := &schedulingv1alpha2.PodGroup{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}}
	group.Spec.SchedulingPolicy.Gang = &schedulingv1alpha2.GangSchedulingPolicy{MinCount: 3}
	client := fake.NewClientset(group)
	binds(client)
	s := &story{}
	node := s.node(t, "a", "1x2", "")
	allow := func(n *v1.Node) *v1.Node {
		n.Status.Allocatable["pods"] = resource.MustParse("100")
		n.Status.Capacity = n.Status.Allocatable
		return n
	}
	if _, err := client.CoreV1().Nodes().Create(ctx, allow(node), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	create := func(p *v1.Pod) {
		t.Helper()
		p.Spec.SchedulerName = v1.DefaultSchedulerName
		if _, err := client.CoreV1().Pods(p.Namespace).Create(ctx, p, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	get := func(pod string) *v1.Pod {
		t.Helper()
		p, err := client.CoreV1().Pods("default").Get(ctx, pod, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	members := []string{"g1", "g2", "g3"}
	for _, member := range members {
		p := widgets(t, member, 1)
		p.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: &name}
		create(p)
	}
	startScheduler(t, client)
	eventually(t, "the gang is refused", func() bool {
		for _, member := range members {
			if len(get(member).Status.Conditions) == 0 {
				return false
			}
		}
		return true
	})
	create(widgets(t, "both", 2))
	eventually(t, "a pod gets what the gang gave back", func() bool { return get("both").Spec.NodeName != "" })
	for _, member := range members {
		if get(member).Spec.NodeName != "" {
			t.Fatalf("pod %s of a gang that does not fit is bound", member)
		}
	}
	if _, err := client.CoreV1().Nodes().Create(ctx, allow(s.node(t, "b", "1x1", "")), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := client.CoreV1().Pods("default").Delete(ctx, "both", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	given := map[string]string{}
	for _, member := range members {
		eventually(t, "pod "+member+" of the gang is bound", func() bool { return get(member).Spec.NodeName != "" })
		p := get(member)
		info, err := assignment.Granted(p.Annotations, string(p.UID), p.Spec.NodeName)
		if err != nil || info == nil {
			t.Fatalf("pod %s: %v, %v", member, info, err)
		}
		for _, from := range info.RunningContainers["main"].AllocateFrom {
			key := p.Spec.NodeName + string(from)
			if given[key] != "" {
				t.Errorf("%s is given to %s and to %s", key, given[key], member)
			}
			given[key] = member
		}
	}
	if len(given) != 3 {
		t.Errorf("given: %v", given)
	}
}

// A pod of higher priority takes the devices of others: upstream's preemption asks
// the plugins what would be without them, and the pod is tried when they are gone.
func TestPreemptionInTheScheduler(t *testing.T) {
	ctx, client := context.Background(), fake.NewClientset()
	binds(client)
	s := &story{}
	node := s.node(t, "a", "1x4", "")
	node.Status.Allocatable["pods"] = resource.MustParse("100")
	node.Status.Capacity = node.Status.Allocatable
	if _, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	startScheduler(t, client)
	create := func(name, priority string, n string) {
		t.Helper()
		// In the annotation alone: NodeResourcesFit does not know of these widgets.
		p := parsePod(t, name, "", priority, "main\nannotation "+`{"runningcontainer":{"main":{"requests":{"example.com/widget":`+n+`}}}}`)
		p.Spec.SchedulerName = v1.DefaultSchedulerName
		if _, err := client.CoreV1().Pods(p.Namespace).Create(ctx, p, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	bound := func(name string) bool {
		p, err := client.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
		return err == nil && p.Spec.NodeName != ""
	}
	create("important", "5", "1")
	for _, name := range []string{"low1", "low2", "low3"} {
		create(name, "1", "1")
	}
	for _, name := range []string{"important", "low1", "low2", "low3"} {
		eventually(t, "pod "+name+" is bound", func() bool { return bound(name) })
	}
	create("vip", "9", "3")
	eventually(t, "the pod of the highest priority is bound", func() bool { return bound("vip") })
	left, err := client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(left.Items) != 2 || !bound("important") {
		t.Errorf("left are %d pods; the important one too: %v", len(left.Items), bound("important"))
	}
}
