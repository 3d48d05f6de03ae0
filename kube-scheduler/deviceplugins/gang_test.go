package deviceplugins

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/kubernetes/pkg/features"
)

// A gang of three, and room for two: upstream's scheduler reserves two, is refused
// the third and reverts. A pod that needs both gets them, and when it is gone and
// there is room for a third, all of the gang run.
func TestGang(t *testing.T) {
	featuregatetesting.SetFeatureGatesDuringTest(t, utilfeature.DefaultFeatureGate,
		featuregatetesting.FeatureOverrides{features.GenericWorkload: true})
	group := &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Name: "g", Namespace: "default"}}
	group.Spec.SchedulingPolicy.Gang = &schedulingv1beta1.GangSchedulingPolicy{MinCount: 3}
	c := newCluster(t, group)
	c.node("a", "1x2")
	members := []string{"g1", "g2", "g3"}
	for _, member := range members {
		p := widgets(t, member, 1)
		p.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: &group.Name}
		c.create(p)
	}
	c.schedule()
	for _, member := range members {
		c.awaitRefused(member)
	}
	c.create(widgets(t, "both", 2))
	c.awaitBound("both")
	for _, member := range members {
		if c.pod(member).Spec.NodeName != "" {
			t.Fatalf("pod %s of a gang that does not fit is bound", member)
		}
	}
	c.node("b", "1x1")
	c.delete("both")
	c.awaitBound(members...)
	c.haveTheirOwn(1, members...)
}

// A pod of higher priority takes the devices of others: upstream's preemption asks
// the plugins what would be without them, and the pod is tried when they are gone.
func TestPreemptionInTheScheduler(t *testing.T) {
	c := newCluster(t)
	c.node("a", "1x4")
	c.schedule()
	asking := func(name, priority string, n int) *v1.Pod { return written(t, name, priority, "example.com/widget", n) }
	c.create(asking("important", "5", 1), asking("low1", "1", 1), asking("low2", "1", 1), asking("low3", "1", 1))
	c.awaitBound("important", "low1", "low2", "low3")
	c.create(asking("vip", "9", 3))
	c.awaitBound("vip")
	left, err := c.client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(left.Items) != 2 || c.pod("important").Spec.NodeName == "" {
		t.Errorf("left are %d pods, want vip and important", len(left.Items))
	}
}
