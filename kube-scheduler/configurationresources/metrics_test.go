package configurationresources

import (
	"strings"
	"testing"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/testutil"

	"github.com/kubeslot/kubeslot/kube-scheduler/slotcache"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// metric reads a counter, or a histogram's sum, of the metric that has the label's value, and how
// many the histogram has observed. It must be registered: others count nothing.
func metric(t *testing.T, name, label string) (value float64, count uint64) {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			has := label == ""
			for _, l := range m.GetLabel() {
				has = has || l.GetValue() == label
			}
			if f.GetName() == name && has {
				return m.GetCounter().GetValue() + m.GetHistogram().GetSampleSum(), m.GetHistogram().GetSampleCount()
			}
		}
	}
	t.Fatalf("there is no metric %s %s", name, label)
	return 0, 0
}

func TestMetrics(t *testing.T) {
	r := newRig(t)
	device(r.cache, "cam-000001", nil, "node-a")
	device(r.cache, "cam-000002", nil, "node-a")
	ofPod := claim("cam-000002-0", "C:gone:node-a")
	ofPod.Spec.Pod = &v1alpha1.PodReference{Namespace: "default", Name: "gone", UID: "gone"}
	r.cache.SetClaim(ofPod)
	device(r.cache, "cam-000003", nil, "node-b")
	device(r.cache, "cam-000004", nil, "node-c")
	device(r.cache, "cam-000005", nil, "node-d")
	// In device-plugin mode, and with DRA, the claim names no pod.
	device(r.cache, "cam-00000b", map[string]string{"cam-00000b-0": "C:cam-0:node-a"}, "node-a")
	r.schedule(pod("holder", "1"), "node-a")
	r.cache.SetPod(pod("waiter", "1"))
	stranger := pod("stranger", "1")
	stranger.Spec.SchedulerName = "theirs"
	r.cache.SetPod(stranger)
	for _, name := range []string{"early", "late"} {
		r.cache.SetPod(bound(pod(name, "1"), "node-c", slotsOf("cam-000004")))
	}
	r.cache.SetPod(nominatedTo(important("vip"), "node-d"))
	r.cache.SetClaim(claim("cam-000001-1", "C:x:node-a")) // beyond the capacity
	r.cache.SetClaim(claim("cam-000001-0", "C:x:node-z")) // out of reach
	stolen := reported("cam-000001")
	stolen.Shared = false // of another node, by its hash
	r.cache.SetSlice(slice("node-z", "0", stolen))
	r.cache.Lead()
	registry := metrics.NewKubeRegistry()
	c := &slotcache.Collector{}
	c.Report(r.cache)
	registry.CustomMustRegister(c)
	names := []string{"kubeslot_scheduler_ignored", "kubeslot_scheduler_slots", "kubeslot_scheduler_waiting_pods"}
	want := `
# HELP kubeslot_scheduler_ignored [ALPHA] What does not count: claims (SlotClaims whose node does not reach the device, or beyond the capacity) and devices (of DeviceSlices, left out because they are not what they say).
# TYPE kubeslot_scheduler_ignored gauge
kubeslot_scheduler_ignored{what="claims"} 2
kubeslot_scheduler_ignored{what="devices"} 1
# HELP kubeslot_scheduler_slots [ALPHA] Slots of a Configuration by state: free, held (by a pod, a ResourceClaim, or in ` +
		`device-plugin mode a kubelet), claimed by a node for no known pod, conflicting (held by several pods), ` +
		`nominated (kept for a pod that preempted).
# TYPE kubeslot_scheduler_slots gauge
kubeslot_scheduler_slots{configuration="cam",state="claimed"} 1
kubeslot_scheduler_slots{configuration="cam",state="conflicting"} 1
kubeslot_scheduler_slots{configuration="cam",state="free"} 1
kubeslot_scheduler_slots{configuration="cam",state="held"} 2
kubeslot_scheduler_slots{configuration="cam",state="nominated"} 1
# HELP kubeslot_scheduler_waiting_pods [ALPHA] Pods not bound yet that request slots, by Configuration (<unknown> when there is none of the name) and why they were not scheduled when they were tried last. Of the scheduler that leads.
# TYPE kubeslot_scheduler_waiting_pods gauge
kubeslot_scheduler_waiting_pods{configuration="cam",reason="NotTried"} 2
kubeslot_scheduler_waiting_pods{configuration="cam",reason="OtherScheduler"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
	standby := newRig(t) // why a pod waits is the leader's to say
	standby.cache.SetPod(pod("waiter", "1"))
	c.Report(standby.cache)
	if err := testutil.GatherAndCompare(registry, strings.NewReader(""), "kubeslot_scheduler_waiting_pods", "kubeslot_scheduler_oldest_waiting_pod_seconds"); err != nil {
		t.Errorf("a scheduler that does not lead has waiting pods: %v", err)
	}
}

// Each choice of slots is timed, by whether there were any.
func TestResolutionIsTimed(t *testing.T) {
	slotcache.RegisterMetrics()
	timed := func() (n [2]uint64, seconds float64) {
		for i, result := range []string{"taken", "short"} {
			sum, count := metric(t, "kubeslot_scheduler_resolution_duration_seconds", result)
			n[i], seconds = count, seconds+sum
		}
		return n, seconds
	}
	r := cameraRig(t)
	p, q := pod("p", "1"), pod("q", "1")
	state := r.fits(q, "node-b")
	before, since := timed()
	r.schedule(p, "node-a")
	if status := r.Reserve(r.ctx, state, q, "node-b"); status.IsSuccess() {
		t.Fatal("the slot is given twice")
	}
	after, until := timed()
	if taken, short := after[0]-before[0], after[1]-before[1]; taken != 1 || short != 1 {
		t.Errorf("timed: %d that took slots and %d that were short of them, want one each", taken, short)
	}
	if took := until - since; took <= 0 || took > 60 {
		t.Errorf("they took %v seconds", took)
	}
}
