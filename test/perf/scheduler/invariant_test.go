package scheduler

import (
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/test/utils/client-go/ktesting"

	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
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
	if r.allocatorDRA {
		claims, err := tCtx.Client().ResourceV1().ResourceClaims(metav1.NamespaceAll).List(tCtx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		errs = append(errs, r.checkClaims(claims.Items))
	}
	if !r.ours {
		return errors.Join(errs...)
	}
	client, err := ourClient(tCtx)
	if err != nil {
		return err
	}
	reported, err := client.KubeslotV1alpha1().DeviceSlices().List(tCtx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	reach := map[string]map[string]bool{}
	for i := range reported.Items {
		spec := &reported.Items[i].Spec
		for d := range spec.Devices {
			instance := spec.Devices[d].Instance()
			if reach[instance] == nil {
				reach[instance] = map[string]bool{}
			}
			reach[instance][spec.NodeName] = true
		}
	}
	made, err := client.KubeslotV1alpha1().SlotClaims().List(tCtx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	claims := map[string]claim{}
	for i := range made.Items {
		spec := &made.Items[i].Spec
		claims[made.Items[i].Name] = claim{spec.Holder, spec.NodeName, spec.Level}
	}
	return errors.Join(append(errs, r.checkSlots(pods.Items, reach, claims)...)...)
}

// claim is what a SlotClaim says.
type claim struct {
	holder, node string
	level        v1alpha1.Level
}

// checkSlots checks the pods' assignments against the nodes that reach each Instance,
// and against the claims, by slot.
func (r run) checkSlots(pods []v1.Pod, reach map[string]map[string]bool, claims map[string]claim) (errs []error) {
	holders := map[slot.Name]string{}
	want := map[string]claim{}
	_, capacity := r.instances()
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
		for _, asking := range pod.Spec.Containers {
			container := info.RunningContainers[asking.Name]
			grants, err := assignment.Grants(&container)
			if err != nil {
				fail("%w", err)
			}
			for kind, asked := range asking.Resources.Requests {
				got := len(slices.DeleteFunc(slices.Clone(grants), func(g assignment.Grant) bool {
					return assignment.ResourcePrefix+g.Resource != string(kind)
				}))
				if int64(got) != asked.Value() {
					fail("%d slots instead of %s for container %s", got, asked.String(), asking.Name)
				}
			}
			for _, g := range grants {
				if other, taken := holders[g.Slot]; taken {
					fail("slot %s is also held by %s", g.Slot, other)
				}
				holders[g.Slot] = pod.Name
				want[g.Slot.String()] = claim{string(pod.UID), pod.Spec.NodeName, v1alpha1.ConfigurationLevel}
				if reach[g.Slot.Instance] == nil || g.Slot.Index >= capacity {
					fail("slot %s does not exist", g.Slot)
				} else if !reach[g.Slot.Instance][pod.Spec.NodeName] {
					fail("slot %s cannot be reached from there", g.Slot)
				}
			}
		}
	}
	if !r.strict {
		return errs
	}
	for name, c := range claims {
		if w, wanted := want[name]; !wanted {
			errs = append(errs, fmt.Errorf("slot %s is claimed by %s on node %s, and should be free", name, c.holder, c.node))
		} else if c != w {
			errs = append(errs, fmt.Errorf("slot %s has the claim %v instead of %v", name, c, w))
		}
	}
	for name, w := range want {
		if _, has := claims[name]; !has {
			errs = append(errs, fmt.Errorf("slot %s is not claimed, instead of %v", name, w))
		}
	}
	return errs
}
