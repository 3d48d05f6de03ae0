package scheduler

import (
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/test/utils/ktesting"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/slot"
)

// check reads the API after a run: every pod is bound, and in our arms each has
// as many distinct slots as it asks for, all of Instances that its node
// reaches, and none that another pod has. With strict the slots that are claimed are
// those, by their pods.
func (r run) check(tCtx ktesting.TContext) error {
	pods, err := tCtx.Client().CoreV1().Pods(metav1.NamespaceAll).List(tCtx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	var errs []error
	if len(pods.Items) != r.fill+r.pods {
		errs = append(errs, fmt.Errorf("there are %d pods instead of %d", len(pods.Items), r.fill+r.pods))
	}
	for i := range pods.Items {
		if pods.Items[i].Spec.NodeName == "" {
			errs = append(errs, fmt.Errorf("pod %s is not bound", pods.Items[i].Name))
		}
	}
	if !r.ours {
		return errors.Join(errs...)
	}
	client, err := akriClient(tCtx)
	if err != nil {
		return err
	}
	list, err := client.AkriV0().Instances(metav1.NamespaceAll).List(tCtx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	instances := make(map[string]*akriv0.Instance, len(list.Items))
	for i := range list.Items {
		instances[list.Items[i].Name] = &list.Items[i]
	}
	return errors.Join(append(errs, r.checkSlots(pods.Items, instances)...)...)
}

func (r run) checkSlots(pods []v1.Pod, instances map[string]*akriv0.Instance) (errs []error) {
	holders := map[slot.Name]string{}
	claims := map[string]string{} // by slot, as they should be
	for i := range pods {
		pod := &pods[i]
		fail := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("pod %s on node %s: %w", pod.Name, pod.Spec.NodeName, fmt.Errorf(format, args...)))
		}
		info, err := assignment.Granted(pod.Annotations, string(pod.UID), pod.Spec.NodeName)
		if err != nil || info == nil {
			fail("no assignment, error %v", err)
			continue
		}
		got := 0
		for _, container := range info.RunningContainers {
			grants, err := assignment.Grants(&container)
			if err != nil {
				fail("%w", err)
			}
			for _, g := range grants {
				got++
				if other, taken := holders[g.Slot]; taken {
					fail("slot %s is also held by %s", g.Slot, other)
				}
				holders[g.Slot] = pod.Name
				claims[g.Slot.String()] = slot.Usage{Node: pod.Spec.NodeName, Holder: string(pod.UID)}.String()
				in := instances[g.Slot.Instance]
				if in == nil || g.Slot.Index >= int(in.Spec.Capacity) {
					fail("slot %s does not exist", g.Slot)
				} else if !slices.Contains(in.Spec.Nodes, pod.Spec.NodeName) {
					fail("slot %s cannot be reached from there", g.Slot)
				}
			}
		}
		asked := pod.Spec.Containers[0].Resources.Requests[r.resource]
		if int64(got) != asked.Value() {
			fail("%d slots instead of %s", got, asked.String())
		}
	}
	if !r.strict {
		return errs
	}
	for _, in := range instances {
		for name, value := range in.Spec.DeviceUsage {
			if want := claims[name]; value != want {
				errs = append(errs, fmt.Errorf("slot %s is claimed as %q instead of %q", name, value, want))
			}
			delete(claims, name)
		}
	}
	for name, want := range claims {
		errs = append(errs, fmt.Errorf("slot %s is not claimed, instead of %q", name, want))
	}
	return errs
}
