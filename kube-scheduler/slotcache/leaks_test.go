package slotcache

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2/ktesting"
	testclock "k8s.io/utils/clock/testing"

	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// Nothing is remembered of what has gone: pods that were nominated, slices of which devices were left out.
func TestNothingIsRememberedOfWhatHasGone(t *testing.T) {
	logger, _ := ktesting.NewTestContext(t)
	b := New(logger, testclock.NewFakeClock(time.Now()), nil)
	hash := slot.InstanceHash("dev", true, "", slot.ShortHash)
	b.SetConfiguration(configuration("cam"))
	device := v1alpha1.Device{Configuration: v1alpha1.ConfigurationReference{Namespace: "default", Name: "cam"}, ID: "dev", Hash: hash, Shared: true}
	wrong := device
	wrong.Shared = false
	b.SetSlice(&v1alpha1.DeviceSlice{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: v1alpha1.DeviceSliceSpec{NodeName: "node-a", Devices: []v1alpha1.Device{device}}})
	b.SetSlice(&v1alpha1.DeviceSlice{ObjectMeta: metav1.ObjectMeta{Name: "bad"}, Spec: v1alpha1.DeviceSliceSpec{NodeName: "node-b", Devices: []v1alpha1.Device{wrong}}})

	nominees := []*v1.Pod{asking("p", "cam"), asking("q", "cam")}
	for _, p := range nominees {
		p.Status.NominatedNodeName = "node-a"
		b.SetPod(p)
	}
	if len(b.nominations) != 2 || len(b.withoutSlots()) != 1 || len(b.leftOut) != 1 {
		t.Fatalf("known are %d nominations, %d without slots, %d slices with devices left out; want 2, 1, 1",
			len(b.nominations), len(b.withoutSlots()), len(b.leftOut))
	}
	for _, p := range nominees {
		b.DeletePod(p)
	}
	kept := newChoosers(t, 1)
	for _, p := range []*v1.Pod{asking("p", "cam"), asking("q", "cam"), asking("r", "cam")} {
		kept.keep(p, "node-a")
	}
	kept.DeletePod(asking("p", "cam"))
	kept.Forget(asking("q", "cam"))
	kept.SetClaim(kept.claim(kept.kept("r")[0], "node-a"))
	if len(kept.unclaimed) != 0 {
		t.Errorf("pods are remembered for which nothing is kept: %v", kept.unclaimed)
	}
	b.DeleteSlice("bad")
	if n := len(b.nominations) + len(b.leftOut); n != 0 {
		t.Errorf("%d are remembered: nominations %v, slices %v", n, b.nominations, b.leftOut)
	}
}
