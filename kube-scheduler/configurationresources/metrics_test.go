package configurationresources

import (
	"strings"
	"testing"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/types/slot"
)

// counted reads a counter. It must be registered: others count nothing.
func counted(t *testing.T, c metrics.CounterMetric) float64 {
	t.Helper()
	n, err := testutil.GetCounterMetricValue(c)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestMetrics(t *testing.T) {
	r := newRig(t)
	r.cache.device("cam-000001", nil, "node-a")
	r.cache.device("cam-000002", map[string]string{"cam-000002-0": "C:gone:node-a"}, "node-a")
	r.cache.device("cam-000003", nil, "node-b")
	r.cache.device("cam-000004", nil, "node-c")
	r.cache.device("cam-000005", nil, "node-d")
	r.schedule(t, pod("holder", "1"), "node-a")
	r.cache.setPod(pod("waiter", "1"))
	stranger := pod("stranger", "1")
	stranger.Spec.SchedulerName = "theirs"
	r.cache.setPod(stranger)
	for _, name := range []string{"early", "late"} {
		r.cache.setPod(bound(t, pod(name, "1"), "node-c", ledger.Assignment{"main": {{Resource: "cam", Slot: slot.Name{Instance: "cam-000004"}}}}))
	}
	r.cache.setPod(nominatedTo(important("vip"), "node-d"))
	r.cache.setClaim(claim("cam-000001-1", "C:x:node-a"), false) // beyond the capacity
	r.cache.setClaim(claim("cam-000001-0", "C:x:node-z"), false) // out of reach
	stolen := reported("cam-000001")
	stolen.Shared = false // of another node, by its hash
	r.cache.setSlice(slice("node-z", "0", stolen))
	registry := metrics.NewKubeRegistry()
	c := &collector{}
	c.cache.Store(r.cache)
	registry.CustomMustRegister(c)
	names := []string{"kubeslot_scheduler_ignored", "kubeslot_scheduler_slots", "kubeslot_scheduler_waiting_pods"}
	want := `
# HELP kubeslot_scheduler_ignored [ALPHA] What does not count: claims (SlotClaims whose node does not reach the device, or beyond the capacity) and devices (of DeviceSlices, left out because they are not what they say).
# TYPE kubeslot_scheduler_ignored gauge
kubeslot_scheduler_ignored{what="claims"} 2
kubeslot_scheduler_ignored{what="devices"} 1
# HELP kubeslot_scheduler_slots [ALPHA] Slots of a Configuration by state: free, held by a pod, claimed by a node for no known pod, conflicting (held by several pods), nominated (kept for a pod that preempted).
# TYPE kubeslot_scheduler_slots gauge
kubeslot_scheduler_slots{configuration="cam",state="claimed"} 1
kubeslot_scheduler_slots{configuration="cam",state="conflicting"} 1
kubeslot_scheduler_slots{configuration="cam",state="free"} 1
kubeslot_scheduler_slots{configuration="cam",state="held"} 1
kubeslot_scheduler_slots{configuration="cam",state="nominated"} 1
# HELP kubeslot_scheduler_waiting_pods [ALPHA] Pods not bound yet that request slots, by Configuration (<unknown> when there is none of the name) and why they were not scheduled when they were tried last. Of the scheduler that leads.
# TYPE kubeslot_scheduler_waiting_pods gauge
kubeslot_scheduler_waiting_pods{configuration="cam",reason="NotTried"} 2
kubeslot_scheduler_waiting_pods{configuration="cam",reason="OtherScheduler"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
	r.cache.leads = false // why a pod waits is the leader's to say
	if err := testutil.GatherAndCompare(registry, strings.NewReader(""), "kubeslot_scheduler_waiting_pods", "kubeslot_scheduler_oldest_waiting_pod_seconds"); err != nil {
		t.Errorf("a scheduler that does not lead has waiting pods: %v", err)
	}
}

// Each choice of slots is timed, by whether there were any.
func TestResolutionIsTimed(t *testing.T) {
	registerMetrics()
	timed := func() (n [2]uint64, seconds float64) {
		for i, result := range []string{"taken", "short"} {
			m := resolutionDuration.WithLabelValues(result)
			count, err := testutil.GetHistogramMetricCount(m)
			if err != nil {
				t.Fatal(err)
			}
			sum, err := testutil.GetHistogramMetricValue(m)
			if err != nil {
				t.Fatal(err)
			}
			n[i], seconds = count, seconds+sum
		}
		return n, seconds
	}
	r := newScheduler(t)
	p, q := pod("p", "1"), pod("q", "1")
	state, status := r.filter(q, "node-b")
	if !status.IsSuccess() {
		t.Fatal(status)
	}
	before, since := timed()
	r.schedule(t, p, "node-a")
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
