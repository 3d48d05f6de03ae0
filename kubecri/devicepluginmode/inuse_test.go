package devicepluginmode

import (
	"slices"
	"strings"
	"testing"

	componentmetrics "k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeslot/kubeslot/kubecri/metrics"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/slot"
)

// A container whose sandbox has ended keeps its slot as long as it may live: running, or in a state that the
// runtime does not know.
func TestContainersThatMayLiveKeepTheirSlots(t *testing.T) {
	name := slot.Name{Instance: "cam-8120fe", Index: 1}
	key, value := slot.Annotation(name, "id")
	for state, used := range map[runtimeapi.ContainerState]bool{
		runtimeapi.ContainerState_CONTAINER_RUNNING: true, runtimeapi.ContainerState_CONTAINER_UNKNOWN: true,
		runtimeapi.ContainerState_CONTAINER_CREATED: false, runtimeapi.ContainerState_CONTAINER_EXITED: false,
	} {
		r := newRig(t, newAPI(), "a", akriv0.ConfigurationSpec{}, "east")
		r.machine.ended = true
		r.machine.containers = []*runtimeapi.Container{{Id: "c", PodSandboxId: "s", State: state,
			Annotations: map[string]string{key: value}}}
		if err := r.refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		if is := slices.ContainsFunc(r.holds(""), func(h held) bool { return h.Slot == name && h.Used }); is != used {
			t.Errorf("%v: the slot is in use: %t, want %t", state, is, used)
		}
	}
}

// /readyz and KubeslotRuntimeUnreachable know when it is not known what is in use.
func TestResyncErrorOfTheKubelet(t *testing.T) {
	registry := componentmetrics.NewKubeRegistry()
	r := newRigWith(t, newAPI(), "a", akriv0.ConfigurationSpec{}, func(c *Config) { c.Metrics = metrics.New(registry) },
		"east")
	for _, down := range []bool{false, true, false} {
		r.machine.down = down
		if err := r.refresh(t.Context()); (err != nil) != down {
			t.Fatalf("refresh: %v", err)
		}
		if err := r.NodeClaims().ResyncError(); (err != nil) != down {
			t.Errorf("the kubelet is away: %t, and the error is %v", down, err)
		}
	}
	want := `# HELP kubecri_runtime_resyncs_total [ALPHA] Times that the runtime was asked for its containers, by result.
# TYPE kubecri_runtime_resyncs_total counter
kubecri_runtime_resyncs_total{result="error"} 1
kubecri_runtime_resyncs_total{result="success"} 2
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want),
		"kubecri_runtime_resyncs_total"); err != nil {
		t.Error(err)
	}
}
