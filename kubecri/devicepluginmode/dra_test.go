package devicepluginmode

import (
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// becomes makes the Configuration what it is to be, and takes the inventory.
func (r *rig) becomes(t *testing.T, spec akriv0.Allocator, status *akriv0.AllocatorStatus) {
	t.Helper()
	c := &akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "cam", UID: "cam-uid"},
		Spec:   akriv0.ConfigurationSpec{Capacity: capacity, Allocator: spec},
		Status: akriv0.ConfigurationStatus{Allocator: status}}
	if err := r.Configurations.Informer().GetIndexer().Update(c); err != nil {
		t.Fatal(err)
	}
	r.inventory, _ = r.takeInventory()
}

// Of a Configuration that is to be DRA's no more slots are given. Who holds some keeps them, and what nobody
// holds has no resource any more: the kubelet refuses pods with one of which it has none.
func TestDRAGivesTheSlots(t *testing.T) {
	r := newRig(t, newAPI(), "a", akriv0.ConfigurationSpec{}, "east", "west")
	held := slot.Name{Instance: east().instance, Index: 0}
	if _, err := r.allocate(t.Context(), east(), []string{held.String()}); err != nil {
		t.Fatal(err)
	}
	r.catchUp(1)
	r.becomes(t, akriv0.AllocatorDRA, nil)
	keys := r.inventory.keys(true)
	if !keys[cam] || !keys[east()] || len(keys) != 2 {
		t.Errorf("plugins of %v, want those of what is held", keys)
	}
	if _, err := r.allocate(t.Context(), east(), []string{held.String()}); err != nil {
		t.Errorf("the holder has lost its slot: %v", err)
	}
	if _, err := r.allocate(t.Context(), cam, []string{"cam-1"}); err == nil {
		t.Error("another slot was given")
	}
	if err := r.claims.GiveBack(t.Context(), held); err != nil {
		t.Fatal(err)
	}
	r.becomes(t, akriv0.AllocatorDRA, akriv0.NewAllocatorStatus(akriv0.AllocatorDRA, nil))
	if keys := r.inventory.keys(true); len(keys) != 0 {
		t.Errorf("plugins of %v, and nothing is held", keys)
	}
	// Back: an Instance that ResourceClaims have is not given yet.
	r.becomes(t, akriv0.AllocatorSlots, akriv0.NewAllocatorStatus(akriv0.AllocatorSlots, []string{east().instance}))
	if _, err := r.allocate(t.Context(), east(), []string{held.String()}); err == nil {
		t.Error("a slot was given of an Instance that DRA has")
	}
	if _, err := r.allocate(t.Context(), cam, []string{"cam-0"}); err != nil {
		t.Errorf("no slot was given of the other Instance: %v", err)
	}
}

// A slot that a ResourceClaim of this node holds is not one of the kubelet's ids.
func TestSlotOfAResourceClaim(t *testing.T) {
	r := newRig(t, newAPI(), "a", akriv0.ConfigurationSpec{}, "east")
	name := slot.Name{Instance: east().instance, Index: 0}
	r.shows(&v1alpha1.SlotClaim{ObjectMeta: metav1.ObjectMeta{Name: name.String(), UID: "1", ResourceVersion: "1"},
		Spec: v1alpha1.SlotClaimSpec{NodeName: "a", Level: v1alpha1.ConfigurationLevel, Holder: "dra.u1.s0",
			ResourceClaim: &v1alpha1.ResourceClaimReference{Namespace: "ns", Name: "c", UID: "u1"}}}, false)
	_, err := r.allocate(t.Context(), east(), []string{name.String()})
	if err == nil || !strings.Contains(err.Error(), "claimed by ResourceClaim ns/c on node a") {
		t.Errorf("got %v", err)
	}
	if _, err := r.allocate(t.Context(), cam, []string{"cam-0"}); err != nil {
		t.Errorf("the other slot is not given: %v", err)
	}
}

// What Kubernetes has made a ResourceClaim of is not asked of device plugins: it keeps no slot of theirs.
func TestRequestsOfResourceClaims(t *testing.T) {
	main := corev1.Container{Name: "main", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
		"akri.sh/cam": apiresource.MustParse("1"), "akri.sh/mic": apiresource.MustParse("2")}}}
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{main}}}
	if got, want := requests(pod), map[string]int64{"akri.sh/cam": 1, "akri.sh/mic": 2}; !maps.Equal(got, want) {
		t.Errorf("requests %v, want %v", got, want)
	}
	pod.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{
		RequestMappings: []corev1.ContainerExtendedResourceRequest{
			{ContainerName: "main", ResourceName: "akri.sh/cam"}}}
	if got, want := requests(pod), map[string]int64{"akri.sh/mic": 2}; !maps.Equal(got, want) {
		t.Errorf("requests %v, want %v", got, want)
	}
}
