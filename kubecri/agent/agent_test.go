package agent

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/kubecri/agent/deviceslices"
	"github.com/kubeslot/kubeslot/kubecri/agent/reports"
	v0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// A device that is plugged in is in a slice without delay.
func TestAPluggedInDeviceIsReportedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := configuration("cam")
		c.Spec.BrokerProperties = map[string]string{"URL": "rtsp"} // not a node's to say
		api, handler := newAPI(c), silent()
		api.start(t, "node-a", handler)
		pass(time.Minute)
		handler.see("foo0")
		synctest.Wait()
		want := []v1alpha1.DeviceSlice{{
			ObjectMeta: metav1.ObjectMeta{Name: "node-a-0", UID: "uid-1", ResourceVersion: "1", OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "v1", Kind: "Node", Name: "node-a", UID: "uid-node-a"}}},
			Spec: v1alpha1.DeviceSliceSpec{NodeName: "node-a", Devices: []v1alpha1.Device{{
				Configuration: v1alpha1.ConfigurationReference{Namespace: ns, Name: "cam"},
				ID:            "foo0", Hash: "8120fe", Shared: true, Properties: map[string]string{"ID": "foo0"}}}},
		}}
		if diff := cmp.Diff(want, api.slices(t)); diff != "" {
			t.Errorf("slices (-want +got):\n%s", diff)
		}
	})
}

func TestLocalDevicesOfOneIDHaveDifferentHashes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI(configuration("cam"))
		api.start(t, "node-a", silent().report(false, "video0"))
		api.start(t, "node-b", silent().report(false, "video0"))
		api.want(t, "node-a-0: video0", "node-b-0: video0")
		all := api.slices(t)
		if all[0].Spec.Devices[0].Hash == all[1].Spec.Devices[0].Hash {
			t.Error("both have the same hash")
		}
	})
}

// What is as it should be is neither written nor read, whatever time passes.
func TestTheSteadyStateCallsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, broken, unknown := configuration("cam"), configuration("mic"), configuration("gps")
		broken.Spec.DiscoveryHandler.DiscoveryProperties = []v0.DiscoveryProperty{{Name: "p"}}
		unknown.Spec.DiscoveryHandler.Name = "nmea"
		api := newAPI(c, broken, unknown)
		api.start(t, "node-a", seeing(many(300)...))
		pass(time.Minute)
		if n := len(api.called()); n == 0 {
			t.Error("nothing was written")
		}
		pass(10 * time.Hour)
		c = c.DeepCopy()
		c.Spec.Capacity, c.Spec.BrokerProperties = 3, map[string]string{"URL": "rtsp"} // not in slices
		api.configure(t, c)
		api.called()
		api.wantCalls(t)
	})
}

// Neither a restart nor a Configuration that is made again writes what is there.
func TestARestartWritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, handler := newAPI(configuration("cam")), seeing("foo0", "foo1")
		first := api.start(t, "node-a", handler)
		api.want(t, "node-a-0: foo0 foo1")
		first.stop()
		api.called()
		api.start(t, "node-a", handler)
		api.wantCalls(t)

		anew := configuration("cam")
		anew.UID = "anew" // so an informer says it that did not see the deletion
		api.configure(t, anew)
		api.called()
		api.wantCalls(t)
		api.wantNow(t, "node-a-0: foo0 foo1")
	})
}

func TestNothingIsTakenAwayBeforeTheFirstReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI(configuration("cam"), configuration("mic"))
		first := api.start(t, "node-a", seeing("foo0"))
		api.want(t, "node-a-0: foo0 foo0")
		first.stop() // its handler reports nothing when it is stopped
		api.wantNow(t, "node-a-0: foo0 foo0")
		handler := silent()
		api.start(t, "node-a", handler)
		api.want(t, "node-a-0: foo0 foo0")
		handler.see("foo1")                          // the other went while the agent was away
		api.want(t, "node-a-0: foo0 foo0 foo1 foo1") // or an endpoint has it, which has not registered again
		pass(reports.Registering)
		api.wantNow(t, "node-a-0: foo1 foo1")
	})
}

// A handler whose ids depend on what else is there knows what a former life of it has reported, those last
// that are there.
func TestAHandlerKnowsWhatWasReportedBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI(configuration("cam"))
		a := api.start(t, "node-a", seeing("foo0", "foo1"))
		api.want(t, "node-a-0: foo0 foo1")
		a.stop()
		slice := api.slices(t)[0]
		slice.Spec.Devices[1].Gone, slice.Spec.Devices[1].Unschedulable = true, true
		client := api.KubeslotV1alpha1().DeviceSlices()
		if _, err := client.Update(t.Context(), &slice, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		handler := silent()
		api.start(t, "node-a", handler)
		pass(time.Second)
		want := []discovery.Device{{ID: "foo1", Properties: map[string]string{"ID": "foo1"}},
			{ID: "foo0", Properties: map[string]string{"ID": "foo0"}}}
		if diff := cmp.Diff(want, handler.before); diff != "" {
			t.Errorf("devices of the request (-want +got):\n%s", diff)
		}
	})
}

// A device stays in its slice, and no other slice is written for it.
func TestAChangeRewritesOneSlice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, handler := newAPI(configuration("cam")), seeing(many(600)...)
		api.start(t, "node-a", handler)
		api.wantCalls(t, "create node-a-0", "create node-a-1", "create node-a-2")
		second := api.slices(t)[1].Spec.Devices[7].ID
		ids := slices.DeleteFunc(many(600), func(id string) bool { return id == second })
		handler.see(ids...)
		api.wantCalls(t, "update node-a-1")
		handler.see(append(ids, "new")...)
		api.wantCalls(t, "update node-a-1")
		handler.see()
		api.want(t, "node-a-0:")
	})
}

func TestHandEditsAreRepaired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI(configuration("cam"))
		api.start(t, "node-a", seeing("foo0"))
		api.want(t, "node-a-0: foo0")
		right := api.slices(t)[0]
		for name, change := range map[string]func(*v1alpha1.DeviceSlice){
			"devices":  func(s *v1alpha1.DeviceSlice) { s.Spec.Devices[0].Properties = nil },
			"another":  func(s *v1alpha1.DeviceSlice) { s.Spec.Devices = append(s.Spec.Devices, v1alpha1.Device{ID: "x"}) },
			"none":     func(s *v1alpha1.DeviceSlice) { s.Spec.Devices = nil },
			"problems": func(s *v1alpha1.DeviceSlice) { s.Spec.Problems = []v1alpha1.Problem{{Reason: "X"}} },
			"owner":    func(s *v1alpha1.DeviceSlice) { s.OwnerReferences[0].UID = "former" },
			"label":    func(s *v1alpha1.DeviceSlice) { s.Labels = map[string]string{deviceslices.DiscoveryLabel: "cam"} },
			"deleted":  nil,
			"misnamed": nil,
		} {
			client := api.KubeslotV1alpha1().DeviceSlices()
			switch name {
			case "deleted":
				if err := client.Delete(t.Context(), api.slices(t)[0].Name, metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
			case "misnamed":
				odd := right.DeepCopy()
				odd.Name, odd.UID = "node-a-0-odd", "" // it gets one of its own
				if _, err := client.Create(t.Context(), odd, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			default:
				api.edit(t, api.slices(t)[0].Name, change)
			}
			pass(3 * time.Second)
			got := api.slices(t)
			if len(got) != 1 || !cmp.Equal(got[0].Spec, right.Spec) || !cmp.Equal(got[0].OwnerReferences, right.OwnerReferences) {
				t.Errorf("%s is not repaired: %+v", name, got)
			}
		}
	})
}

func TestNewSaysWhatIsMissing(t *testing.T) {
	_, err := New(Config{NodeName: "node-a"})
	if err == nil || !strings.Contains(err.Error(), "Recorder is missing") || strings.Contains(err.Error(), "NodeName") {
		t.Errorf("New() = %v, want an error that names the Recorder and not the NodeName", err)
	}
}
