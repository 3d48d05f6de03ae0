package deviceplugin

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// Without kube-scheduler of Kubeslot the controller hands devices over: to claims of the stock scheduler and back,
// and what pods hold from before stays theirs. No slot has two holders at any time, for a SlotClaim has one.
func TestDRA(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	instance := r.configuration("claimed", 1, nil, "claimed0")[0]
	r.awaitAmounts(nodeA, map[string]string{"claimed": "1/1"})
	r.run(newPod("before", nodeA, "main=claimed:1"))

	r.allocate("claimed", akriv0.AllocatorDRA)
	r.awaitHandover("claimed", akriv0.AllocatorDRA, instance)
	r.createTemplate("claimed")
	r.create(claimPod("by-claim", nodeB, "claimed"))
	r.awaitPending("by-claim", "cannot allocate all claims")
	r.remove("before")
	r.awaitHandover("claimed", akriv0.AllocatorDRA)
	r.awaitRunning("by-claim")
	if usage := r.usage(); len(usage) != 1 || !strings.Contains(fmt.Sprint(usage), nodeB) {
		t.Errorf("the slots are %v, want one of node %s", usage, nodeB)
	}
	r.awaitAmounts(nodeA, map[string]string{"claimed": "0/0", instance: "0/0"})

	r.allocate("claimed", akriv0.AllocatorSlots)
	r.awaitHandover("claimed", akriv0.AllocatorSlots, instance)
	r.create(newPod("after", nodeA, "main=claimed:1"))
	r.awaitPending("after", "Insufficient akri.sh/claimed")
	r.remove("by-claim")
	r.awaitHandover("claimed", "")
	r.awaitRunning("after")
	if got := r.slots("after"); len(got) != 1 || !strings.HasPrefix(got[0], instance) {
		t.Errorf("pod after has %q, want a slot of %s", got, instance)
	}
}

// allocate has the devices given by the allocator.
func (r *rig) allocate(configuration string, allocator akriv0.Allocator) {
	r.Helper()
	_, err := akri.AkriV0().Configurations(r.ns).Patch(r.ctx, configuration, types.MergePatchType,
		fmt.Appendf(nil, `{"spec":{"allocator":%q}}`, allocator), metav1.PatchOptions{})
	r.check(err)
}

// awaitHandover waits until the status says who gives the devices, "" for no such status, and which Instances the
// former allocator's users hold.
func (r *rig) awaitHandover(configuration string, current akriv0.Allocator, held ...string) {
	r.Helper()
	want := akriv0.NewAllocatorStatus(current, held)
	r.await(fmt.Sprintf("the allocator of %s to be %+v", configuration, *want), func() (bool, string) {
		c, err := akri.AkriV0().Configurations(r.ns).Get(r.ctx, configuration, metav1.GetOptions{})
		r.check(err)
		a := c.Status.Allocator
		if a == nil {
			return current == "", "none"
		}
		return fmt.Sprint(*a) == fmt.Sprint(*want), fmt.Sprintf("%+v", *a)
	})
}

// createTemplate makes a ResourceClaimTemplate for any device of the Configuration, of the same name.
func (r *rig) createTemplate(configuration string) {
	r.Helper()
	template := &resourceapi.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Name: configuration}}
	template.Spec.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: "device",
		Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: v1alpha1.DeviceClassName(configuration)}}}
	_, err := kube.ResourceV1().ResourceClaimTemplates(r.ns).Create(r.ctx, template, metav1.CreateOptions{})
	r.check(err)
}

// claimPod is a pod whose container uses a claim of the template.
func claimPod(name, node, template string) *corev1.Pod {
	p := newPod(name, node, "main")
	p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "device", ResourceClaimTemplateName: &template}}
	p.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "device"}}
	return p
}
