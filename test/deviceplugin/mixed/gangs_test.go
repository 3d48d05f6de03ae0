package mixed

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// A gang of pods that need slots is placed whole or not at all. One that does not fit holds nothing
// and evicts nobody; one that fits when others go has as many of them evicted as it needs. (No node
// chooses slots itself here: see device-plugin-mode.md, both modes in one cluster.)
func TestGangs(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a cluster with the feature gate GenericWorkload: make test-all")
	}
	if os.Getenv("KUBESLOT_E2E") == "" {
		t.Skip("brings up a cluster: run `make test-e2e` as root")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	r := up(t, ctx, true)
	_, err := r.akri.AkriV0().
		Configurations("default").
		Create(ctx, &akriv0.Configuration{
			ObjectMeta: metav1.ObjectMeta{Name: "cam"},
			Spec: akriv0.ConfigurationSpec{
				Capacity: 1,
				DiscoveryHandler: akriv0.DiscoveryHandlerInfo{
					Name:             "debugEcho",
					DiscoveryDetails: "descriptions: [one, two, three]",
				},
			},
		}, metav1.CreateOptions{})
	r.check(err)
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 1000}
	_, err = r.kube.SchedulingV1().PriorityClasses().Create(ctx, class, metav1.CreateOptions{})
	r.check(err)
	r.await("both nodes to advertise the devices", func() (bool, string) {
		a, b := r.node(nodeA), r.node(nodeB)
		return amount(a) == 3 && amount(b) == 3, fmt.Sprint(a.Status.Allocatable, b.Status.Allocatable)
	})

	// Whole: three pods, three slots.
	first := r.gang("first", "", nodeA, nodeB, "")
	for _, name := range first {
		r.awaitRunning(name)
	}
	if n := len(r.claims()); n != 3 {
		t.Errorf("a gang of three has %d claims", n)
	}
	for _, name := range first {
		r.remove(name)
	}

	// Or not at all: nothing is held meanwhile, so two pods that come later have the slots.
	r.run("single", nodeB)
	second := r.gang("second", "", nodeA, nodeB, nodeB)
	for _, name := range second {
		r.awaitRefused(name)
	}
	r.run("later", nodeB)
	r.run("latest", nodeB)
	r.unbound(second)

	// Four are more than there will ever be: nobody is evicted for them.
	third := r.gang("third", "high", nodeA, nodeA, nodeB, nodeB)
	for _, name := range third {
		r.awaitRefused(name)
	}
	r.remove("later") // an event after which it is tried again
	r.await("the gang of four to be tried again", func() (bool, string) {
		out, err := r.cluster.Kubectl(ctx, "get", "podgroups.scheduling.k8s.io", "third", "-o", "jsonpath={.status}")
		return err == nil && out != "", fmt.Sprint(out, err)
	})
	for _, name := range []string{"single", "latest"} {
		if p := r.pod(name); p.DeletionTimestamp != nil || p.Status.Phase != corev1.PodRunning {
			t.Errorf("pod %s is evicted for a gang that does not fit: %s", name, p.Status.Phase)
		}
	}
	r.unbound(third)
	for _, name := range slices.Concat(second, third) {
		r.remove(name)
	}

	// Two are enough when one goes: one slot is free.
	fourth := r.gang("fourth", "high", "", nodeB)
	for _, name := range fourth {
		r.awaitRunning(name)
	}
	left := 0
	list, err := r.kube.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
	r.check(err)
	for _, p := range list.Items {
		if (p.Name == "single" || p.Name == "latest") && p.DeletionTimestamp == nil {
			left++
		}
	}
	if left != 1 {
		t.Errorf("%d of the two pods of low priority are left, want 1", left)
	}
}

// gang creates a PodGroup, of which all pods are bound or none, and its pods, each for a node, or
// for any if that is "". It returns the pods' names.
func (r *rig) gang(name, priorityClass string, nodes ...string) []string {
	r.Helper()
	group := &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Name: name}}
	group.Spec.PriorityClassName = priorityClass
	group.Spec.SchedulingPolicy.Gang = &schedulingv1beta1.GangSchedulingPolicy{MinCount: int32(len(nodes))}
	_, err := r.kube.SchedulingV1beta1().PodGroups("default").Create(r.ctx, group, metav1.CreateOptions{})
	r.check(err)
	var names []string
	for i, node := range nodes {
		p := newPod(fmt.Sprintf("%s-%d", name, i), node)
		p.Spec.PriorityClassName = priorityClass
		p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &name}
		_, err := r.kube.CoreV1().Pods("default").Create(r.ctx, p, metav1.CreateOptions{})
		r.check(err)
		names = append(names, p.Name)
	}
	return names
}

// unbound checks that none of the pods has a node.
func (r *rig) unbound(names []string) {
	r.Helper()
	for _, name := range names {
		if p := r.pod(name); p.Spec.NodeName != "" {
			r.Errorf("pod %s of a gang that does not fit is bound to %s", name, p.Spec.NodeName)
		}
	}
}
