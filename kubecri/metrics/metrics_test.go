package metrics

import (
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// value returns a series' value, or its count when it is a histogram; false when
// there is no such series.
func value(t *testing.T, r metrics.KubeRegistry, name string, labels map[string]string) (float64, bool) {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, series := range family.Metric {
			if family.GetName() != name || !testutil.LabelsMatch(series, labels) {
				continue
			}
			switch {
			case series.Counter != nil:
				return series.Counter.GetValue(), true
			case series.Gauge != nil:
				return series.Gauge.GetValue(), true
			default:
				return float64(series.Histogram.GetSampleCount()), true
			}
		}
	}
	return 0, false
}

func TestForeseeableSeriesStartAtZero(t *testing.T) {
	r := metrics.NewKubeRegistry()
	m := New(r)
	m.Watch(func() map[string]int { return nil }, func() int { return 0 })
	if n := len(Methods()); n != 43 {
		t.Errorf("CRI has %d methods, want 43: is one of the services missing?", n)
	}
	for _, series := range []struct {
		name   string
		labels map[string]string
	}{
		{"kubecri_rpc_duration_seconds", map[string]string{"method": "runtime.v1.ImageService/PullImage"}},
		{"kubecri_rpc_errors_total", map[string]string{"method": "runtime.v1.RuntimeService/CreateContainer", "code": "Unavailable"}},
		{"kubecri_rpc_errors_total", map[string]string{"method": "other", "code": "Unimplemented"}},
		{"kubecri_injections_total", map[string]string{"result": "refused"}},
		{"kubecri_claims_taken_total", nil},
		{"kubecri_claims_released_total", nil},
		{"kubecri_slots_lost_total", nil},
		{"kubecri_claims_held", nil},
		{"kubecri_claims_release_pending", nil},
		{"kubecri_claim_reconciles_total", map[string]string{"result": "error"}},
		{"kubecri_runtime_resyncs_total", map[string]string{"result": "error"}},
		{"kubecri_advertise_patches_total", map[string]string{"result": "error"}},
		{"kubecri_connections_dropped_total", map[string]string{"server": "cri"}},
	} {
		if got, ok := value(t, r, series.name, series.labels); !ok || got != 0 {
			t.Errorf("%s%v is %v (there: %t), want 0", series.name, series.labels, got, ok)
		}
	}
}

func TestWhatIsCounted(t *testing.T) {
	r := metrics.NewKubeRegistry()
	m := New(r)
	m.Watch(func() map[string]int { return map[string]int{"cam": 2, "made-up": 1} }, func() int { return 2 })
	m.Call(runtimeapi.RuntimeService_Version_FullMethodName, codes.OK, time.Millisecond)
	m.Call(runtimeapi.RuntimeService_Version_FullMethodName, codes.Unavailable, time.Millisecond)
	m.Call(runtimeapi.RuntimeService_GetContainerEvents_FullMethodName, codes.Unavailable, time.Hour)
	m.Call("/made.up/Name", codes.Unimplemented, time.Millisecond)
	m.Call("/made.up/Name", codes.Code(99), time.Millisecond)
	m.Injection(Injected)
	m.ClaimsTaken(2)
	m.ClaimsReleased(3)
	m.Reconciled(errors.New("down"))
	m.Resynced(nil)
	m.Patched(nil)
	m.ConnectionDropped(ServerMetrics)
	m.Advertised(map[string]int64{"gone": 1})
	m.Advertised(map[string]int64{"cam": 4, "idle": 0})
	m.SlotLost()
	for _, want := range []struct {
		name, labels string
		value        float64
	}{
		{"kubecri_rpc_duration_seconds", "method=runtime.v1.RuntimeService/Version", 2},
		{"kubecri_rpc_duration_seconds", "method=runtime.v1.RuntimeService/GetContainerEvents", 0},
		{"kubecri_rpc_errors_total", "method=runtime.v1.RuntimeService/Version code=Unavailable", 1},
		{"kubecri_rpc_errors_total", "method=runtime.v1.RuntimeService/GetContainerEvents code=Unavailable", 1},
		{"kubecri_rpc_errors_total", "method=other code=Unimplemented", 1},
		{"kubecri_rpc_errors_total", "method=other code=Unknown", 1},
		{"kubecri_injections_total", "result=injected", 1},
		{"kubecri_claims_taken_total", "", 2},
		{"kubecri_claims_released_total", "", 3},
		{"kubecri_slots_lost_total", "", 1},
		{"kubecri_connections_dropped_total", "server=metrics", 1},
		{"kubecri_claims_held", "", 3},
		{"kubecri_used_slots", "configuration=cam", 2},
		{"kubecri_used_slots", "configuration=idle", 0},
		{"kubecri_used_slots", "configuration=<unknown>", 1},
		{"kubecri_claims_release_pending", "", 2},
		{"kubecri_claim_reconciles_total", "result=error", 1},
		{"kubecri_runtime_resyncs_total", "result=success", 1},
		{"kubecri_advertise_patches_total", "result=success", 1},
		{"kubecri_advertised_slots", "configuration=cam", 4},
	} {
		labels := map[string]string{}
		for _, label := range strings.Fields(want.labels) {
			name, value, _ := strings.Cut(label, "=")
			labels[name] = value
		}
		if got, ok := value(t, r, want.name, labels); !ok || got != want.value {
			t.Errorf("%s{%s} is %v (there: %t), want %v", want.name, want.labels, got, ok, want.value)
		}
	}
	if _, there := value(t, r, "kubecri_used_slots", map[string]string{"configuration": "made-up"}); there {
		t.Error("a name that is no Configuration's has become a time series")
	}
	if _, there := value(t, r, "kubecri_advertised_slots", map[string]string{"configuration": "gone"}); there {
		t.Error("a Configuration that is no longer advertised is still there")
	}
}

// Packages are used without metrics, in tests and by kubecri check.
func TestNoMetricsCountNothing(t *testing.T) {
	var m *Metrics
	m.Call("/a/b", codes.OK, 0)
	m.Injection(Injected)
	m.ClaimsTaken(1)
	m.ClaimsReleased(1)
	m.Reconciled(nil)
	m.Resynced(nil)
	m.Patched(nil)
	m.Advertised(nil)
	m.SlotLost()
	m.Watch(nil, nil)
}

func BenchmarkCall(b *testing.B) {
	m := New(metrics.NewKubeRegistry())
	b.ReportAllocs()
	for b.Loop() {
		m.Call(runtimeapi.RuntimeService_Version_FullMethodName, codes.OK, time.Millisecond)
	}
}
