package metrics

import (
	"strings"
	"testing"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"
)

// Akri's names and labels, which dashboards have.
func TestDiscovery(t *testing.T) {
	registry := metrics.NewKubeRegistry()
	m := New(registry)
	m.DiscoveryReported("udev", "cams", 2*time.Second)
	m.DiscoveryFailed("udev")
	m.DiscoveryFailed("onvif")
	m.Discovered("cams", 3, 1)
	m.ChangesHeld("cams", 2)
	names := []string{"akri_discovery_response_time", "kubecri_device_changes_held", "kubecri_discovered_devices"}
	for labels, want := range map[[2]string]float64{
		{"udev", "Success"}: 1, {"udev", "Fail"}: 1, {"onvif", "Success"}: 0, {"onvif", "Fail"}: 1,
	} {
		got, ok := value(t, registry, "akri_discovery_response_result", map[string]string{"discovery_handler_name": labels[0], "result": labels[1]})
		if !ok || got != want {
			t.Errorf("results %v: %v (there is one: %t), want %v", labels, got, ok, want)
		}
	}
	if err := testutil.GatherAndCompare(registry, strings.NewReader(`# HELP akri_discovery_response_time [ALPHA] Seconds from asking a discovery handler for a Configuration's devices to its first report.
# TYPE akri_discovery_response_time histogram
akri_discovery_response_time_bucket{configuration="cams",le="0.25"} 0
akri_discovery_response_time_bucket{configuration="cams",le="0.5"} 0
akri_discovery_response_time_bucket{configuration="cams",le="1"} 0
akri_discovery_response_time_bucket{configuration="cams",le="2.5"} 1
akri_discovery_response_time_bucket{configuration="cams",le="5"} 1
akri_discovery_response_time_bucket{configuration="cams",le="10"} 1
akri_discovery_response_time_bucket{configuration="cams",le="30"} 1
akri_discovery_response_time_bucket{configuration="cams",le="60"} 1
akri_discovery_response_time_bucket{configuration="cams",le="+Inf"} 1
akri_discovery_response_time_sum{configuration="cams"} 2
akri_discovery_response_time_count{configuration="cams"} 1
# HELP kubecri_device_changes_held [ALPHA] Devices whose changes wait, since they change too often, by Configuration.
# TYPE kubecri_device_changes_held gauge
kubecri_device_changes_held{configuration="cams"} 2
# HELP kubecri_discovered_devices [ALPHA] Devices that this node reports, by Configuration and state: usable, or unschedulable since their discovery handler does not work.
# TYPE kubecri_discovered_devices gauge
kubecri_discovered_devices{configuration="cams",state="unschedulable"} 1
kubecri_discovered_devices{configuration="cams",state="usable"} 3
`), names...); err != nil {
		t.Error(err)
	}
	m.DiscoveryEnded("cams")
	if err := testutil.GatherAndCompare(registry, strings.NewReader(""), names...); err != nil {
		t.Error(err)
	}
	var none *Metrics
	none.DiscoveryReported("udev", "cams", 0)
	none.DiscoveryFailed("udev")
	none.ChangesHeld("cams", 1)
	none.Discovered("cams", 1, 1)
	none.DiscoveryEnded("cams")
}
