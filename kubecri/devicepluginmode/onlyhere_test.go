package devicepluginmode

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/kubecri/claims"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// Another node's claim of a device that this node alone has keeps no pod from it, and gives
// no slot twice. The slot is claimed once that claim is deleted.
func TestAnotherNodeClaimsWhatOnlyThisOneHas(t *testing.T) {
	a := newAPI()
	r, thief := newRig(t, a, "a", akriv0.ConfigurationSpec{}, "local-disk"), newRig(t, a, "b", akriv0.ConfigurationSpec{})
	k := key{"cam", slot.InstanceName("cam", slot.InstanceHash("local-disk", false, "a", slot.ShortHash))}
	first, second := slot.Name{Instance: k.instance, Index: 0}, slot.Name{Instance: k.instance, Index: 1}
	for _, name := range []slot.Name{first, second} {
		if made, other, err := thief.claims.Hold(t.Context(), name,
			claims.Use{Level: v1alpha1.InstanceLevel, Holder: "rogue"}); !made || other != nil || err != nil {
			t.Fatal(made, other, err)
		}
	}
	r.catchUp(2)
	for _, d := range r.resource(k).List() {
		if !d.Healthy {
			t.Errorf("the kubelet is told that %s is not healthy", d.ID)
		}
	}
	if _, err := r.allocate(t.Context(), k, []string{first.String()}); err != nil {
		t.Fatalf("the slot is not given: %v", err)
	}
	// The other resource of the device gets the other slot.
	if _, err := r.allocate(t.Context(), cam, []string{"cam-0"}); err != nil {
		t.Fatalf("the second slot is not given: %v", err)
	}
	if _, err := r.allocate(t.Context(), cam, []string{"cam-1"}); err == nil {
		t.Error("a third of two slots was given")
	}
	if usage := a.usage(); usage[first.String()] != "b" || usage[second.String()] != "b" {
		t.Errorf("claims %v, want those of node b", usage)
	}

	// The container runs, its pod is told, and nothing is released.
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "smith", UID: "u"}, Spec: corev1.PodSpec{NodeName: "a"}}
	if err := r.Pods.Informer().GetIndexer().Add(pod); err != nil {
		t.Fatal(err)
	}
	r.machine.listed = []*podresourcesapi.PodResources{{Namespace: "ns", Name: "smith", Containers: []*podresourcesapi.ContainerResources{{Name: "main",
		Devices: []*podresourcesapi.ContainerDevices{{ResourceName: "akri.sh/" + k.instance, DeviceIds: []string{first.String()}}}}}}}
	annotation, value := slot.Annotation(first, "")
	r.machine.containers = []*runtimeapi.Container{{Id: "c", PodSandboxId: "s", State: runtimeapi.ContainerState_CONTAINER_RUNNING, Annotations: map[string]string{annotation: value}}}
	r.step(2 * settling)
	refresh := func() {
		t.Helper()
		if err := r.refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.catchUp(10)
	}
	refresh()
	select {
	case e := <-r.events.Events:
		if !strings.Contains(e, "ClaimNotBelieved") || !strings.Contains(e, first.String()) ||
			!strings.Contains(e, "on node b") {
			t.Errorf("the pod's Event is %q", e)
		}
	default:
		t.Error("the pod has no Event")
	}
	// Nobody asked for the second slot since: it is free again.
	if _, held := r.asks.unclaimed[first]; !held || len(r.asks.unclaimed) != 1 {
		t.Errorf("holds %v", r.asks.unclaimed)
	}

	// The controller deletes the claims.
	for _, name := range []slot.Name{first, second} {
		if err := thief.claims.GiveBack(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	r.catchUp(10)
	r.step(10 * time.Second) // claims are not made again sooner
	refresh()
	if usage := a.usage(); usage[first.String()] != "a" || len(usage) != 1 {
		t.Errorf("claims %v, want this node's", usage)
	}
	// And released when the container is gone.
	r.machine.containers, r.machine.listed = nil, nil
	r.step(2 * settling)
	refresh()
	refresh()
	if usage := a.usage(); len(usage) != 0 {
		t.Errorf("claims %v, want none", usage)
	}
}

// The claim of another node on a device that it may share is in the way, as ever.
func TestAnotherNodesClaimOfASharedDevice(t *testing.T) {
	a := newAPI()
	r, other := newRig(t, a, "a", akriv0.ConfigurationSpec{}, "east"), newRig(t, a, "b", akriv0.ConfigurationSpec{}, "east")
	name := east().instance + "-0"
	if _, err := other.allocate(t.Context(), east(), []string{name}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.allocate(t.Context(), east(), []string{name}); !errors.As(err, &conflict{}) &&
		(err == nil || !strings.Contains(err.Error(), "on node b")) {
		t.Errorf("got %v", err)
	}
}

// Devices of which slots are held, or are about to be, stay in the node's slices: from before
// the device is looked at, so that none that goes meanwhile is left out.
func TestHeld(t *testing.T) {
	r := newRig(t, newAPI(), "a", akriv0.ConfigurationSpec{}, "east")
	holds := func() bool {
		held, known := r.claims.Held()
		return known && held[east().instance]
	}
	r.synced.Store(false)
	if _, known := r.claims.Held(); known {
		t.Error("known before the runtime and the API server were asked")
	}
	r.synced.Store(true)
	if _, known := r.claims.Held(); known {
		t.Error("known before the runtime was asked")
	}
	if err := r.refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if holds() {
		t.Error("held before a slot was given")
	}
	device, gone := r.Device, true
	r.Device = func(ctx context.Context, instance string) (discovery.Device, error) {
		if !holds() {
			t.Error("not held while its slot is being given")
		}
		if gone {
			return discovery.Device{}, errors.New("gone")
		}
		return device(ctx, instance)
	}
	if _, err := r.allocate(t.Context(), cam, []string{"cam-0"}); err == nil || holds() {
		t.Errorf("%v; held: %v, of a slot that was not given", err, holds())
	}
	gone = false
	if _, err := r.allocate(t.Context(), cam, []string{"cam-0"}); err != nil || !holds() {
		t.Errorf("%v; held: %v", err, holds())
	}
	r.step(2 * settling)
	if err := r.refresh(t.Context()); err != nil || holds() {
		t.Errorf("%v; held: %v, though it was released", err, holds())
	}
}

// Slots are given of devices that the node's slices list: of others no claim counts.
func TestSlotsOfListedDevicesOnly(t *testing.T) {
	r := newRig(t, newAPI(), "a", akriv0.ConfigurationSpec{}, "east", "west")
	slices := r.Slices.Informer().GetIndexer()
	s := slices.List()[0].(*v1alpha1.DeviceSlice).DeepCopy()
	west := s.Spec.Devices[1].Instance()
	s.Spec.Devices[1].Unschedulable, s.Spec.Devices[1].Gone = true, true
	if err := slices.Update(s); err != nil {
		t.Fatal(err)
	}
	inv, _ := r.takeInventory()
	if devices := inv["cam"].devices; len(devices) != 1 || !devices[east().instance] {
		t.Errorf("serves %v, want only the one that is not gone", devices)
	}
	s = s.DeepCopy()
	s.Spec.Devices = s.Spec.Devices[:1]
	if err := slices.Update(s); err != nil {
		t.Fatal(err)
	}
	inv, _ = r.takeInventory()
	if devices := inv["cam"].devices; len(devices) != 1 || devices[west] {
		t.Errorf("serves %v, want only the one that is listed", devices)
	}
}
