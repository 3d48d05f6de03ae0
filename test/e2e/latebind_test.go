package e2e

import (
	"fmt"
	"maps"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeslot/kubeslot/types/assignment"
)

// A scheduler that lost its lease binds a pod late, with a slot that is given to
// another pod by then: the first keeps it, the later one goes and says why.
func TestLateBindOfAnotherScheduler(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.debugEcho("bound", 1, nil, "bound0")
	r.create(newPod("first", nodeA, map[string]int64{"bound": 1}))
	r.agree("first", "bound", 1)

	second := newPod("second", nodeB, map[string]int64{"bound": 1})
	second.Spec.SchedulerName = "former-leader"
	second = r.create(second)
	notes := maps.Clone(r.pod("first").Annotations)
	info, err := assignment.DecodePod(notes)
	r.check(err)
	info.Name, info.NodeName = "second", nodeB
	notes, err = assignment.Encode(info, string(second.UID), nil)
	r.check(err)
	r.check(kube.CoreV1().Pods(r.ns).Bind(r.ctx, &v1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: "second", UID: second.UID, Annotations: notes},
		Target:     v1.ObjectReference{Kind: "Node", Name: nodeB}}, metav1.CreateOptions{}))

	// The scheduler leads once it has something to schedule.
	r.create(newPod("waiter", nodeB, map[string]int64{"bound": 1}))
	r.await("the later pod to be evicted", func() (bool, string) {
		p, err := kube.CoreV1().Pods(r.ns).Get(r.ctx, "second", metav1.GetOptions{})
		return err != nil || p.DeletionTimestamp != nil, fmt.Sprint(err)
	})
	r.awaitEvent("second", "SlotAssignedTwice", "first")
	r.agree("first", "bound", 1)
}
