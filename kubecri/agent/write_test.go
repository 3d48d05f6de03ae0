package agent

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/kubecri/agent/reports"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

func TestADeletedConfigurationTakesItsDevices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI(configuration("cam"), configuration("mic"))
		agent := api.start(t, "node-a", seeing("foo0"))
		api.want(t, "node-a-0: foo0 foo0")
		if err := api.AkriV0().Configurations(ns).Delete(t.Context(), "cam", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		api.want(t, "node-a-0: foo0")
		if _, ok := agent.Device("cam-8120fe"); ok {
			t.Error("the device of a deleted Configuration is still there")
		}
		mic := configuration("mic")
		mic.DeletionTimestamp = &metav1.Time{Time: time.Now()} // a finalizer keeps it
		api.configure(t, mic)
		api.want(t, "node-a-0:")
	})
}

// The cache may be that of an API server that lags: before devices are taken away,
// the Configuration is asked for.
func TestAConfigurationThatTheCacheDoesNotKnowYetKeepsItsDevices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI(configuration("cam"))
		first := api.start(t, "node-a", seeing("foo0"))
		api.want(t, "node-a-0: foo0")
		first.stop()
		second := api.start(t, "node-a", seeing("foo0"))
		pass(time.Second)
		if err := second.config.Configurations.Informer().GetStore().Replace(nil, ""); err != nil {
			t.Fatal(err)
		}
		api.edit(t, "node-a-0", func(s *v1alpha1.DeviceSlice) { s.Labels = map[string]string{"x": "y"} }) // has it looked at
		api.want(t, "node-a-0: foo0")
	})
}

// Slices belong to the Node object there is: while there is none nothing is written,
// and what goes with a former one is made again.
func TestNodesComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI(configuration("cam"))
		nodes, client := api.kube.CoreV1().Nodes(), api.KubeslotV1alpha1().DeviceSlices()
		if err := nodes.Delete(t.Context(), "node-a", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		api.start(t, "node-a", seeing("foo0"))
		api.want(t)
		owned := func(uid types.UID) {
			t.Helper()
			api.want(t, "node-a-0: foo0")
			if got := api.slices(t)[0].OwnerReferences[0].UID; got != uid {
				t.Errorf("owned by %s, want %s", got, uid)
			}
		}
		for _, collected := range []bool{true, false} { // whether the garbage collector was fast
			anew := node("node-a")
			if _, err := nodes.Create(t.Context(), anew, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			owned(anew.UID)
			anew, err := nodes.Get(t.Context(), "node-a", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			anew.UID = types.UID(fmt.Sprintf("anew-%t", collected)) // so an informer says it that did not see the deletion
			if _, err := nodes.Update(t.Context(), anew, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			owned(anew.UID)
			if err := nodes.Delete(t.Context(), "node-a", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if collected {
				if err := client.Delete(t.Context(), "node-a-0", metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
				api.want(t)
			}
		}
	})
}

func TestASliceNameThatAnotherNodeHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI(configuration("cam"), &v1alpha1.DeviceSlice{
			ObjectMeta: metav1.ObjectMeta{Name: "node-a-0"}, Spec: v1alpha1.DeviceSliceSpec{NodeName: "rogue"}})
		api.start(t, "node-a", seeing("foo0"))
		api.want(t, "node-a-0:", "node-a-1: foo0")
		api.called()
		pass(time.Hour)
		api.wantCalls(t)
	})
}

func TestTheDesiredStateOutlivesAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, handler := newAPI(configuration("cam")), seeing("foo0")
		agent := api.start(t, "node-a", handler)
		api.want(t, "node-a-0: foo0")
		api.called()
		api.outage(0)
		handler.see("foo1")
		pass(time.Hour)
		if n := len(api.called()); n < 300 || n > 400 { // one in ten seconds
			t.Errorf("tried %d times in an hour", n)
		}
		if _, ok := agent.Device("cam-8120fe"); ok {
			t.Error("the device is still there")
		}
		api.outage(-1)
		pass(12 * time.Second)
		api.wantNow(t, "node-a-0: foo1")
	})
}

// A node whose watch is slow goes on from what it has written: it meets no conflict with
// itself, and waits for no cache.
func TestALaggingCacheMeetsNoConflict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, handler := newAPI(configuration("cam")), seeing("foo0")
		api.PrependWatchReactor("deviceslices", func(action clienttesting.Action) (bool, watch.Interface, error) {
			prompt, err := api.Tracker().Watch(action.GetResource(), "")
			lagging := watch.NewFakeWithChanSize(10, false)
			go func() {
				for event := range prompt.ResultChan() {
					time.AfterFunc(20*time.Second, func() { lagging.Action(event.Type, event.Object) })
				}
			}()
			time.AfterFunc(25*time.Second, prompt.Stop)
			return true, lagging, err
		})
		api.start(t, "node-a", handler)
		pass(500 * time.Millisecond)
		for _, id := range []string{"foo1", "foo2", "foo3"} {
			handler.see(id)
			pass(2 * time.Second)
			api.wantNow(t, "node-a-0: "+id)
		}
		api.wantCalls(t, "create node-a-0", "update node-a-0", "update node-a-0", "update node-a-0")
		pass(2 * time.Minute)
		api.wantCalls(t)
	})
}

// Changes that keep coming are gathered, for no more than a second.
func TestBurstsAreGathered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, handler := newAPI(configuration("cam")), seeing()
		api.start(t, "node-a", handler)
		pass(time.Minute)
		api.called()
		var writes int
		late := time.Duration(0)
		for i := range 1000 { // in ten seconds
			handler.see(fmt.Sprint(i))
			pass(10 * time.Millisecond)
			writes += len(api.called())
			if got := api.slices(t)[0].Spec.Devices; len(got) == 0 || got[0].ID != fmt.Sprint(i) {
				late += 10 * time.Millisecond
			} else {
				late = 0
			}
			if late > time.Second {
				t.Fatalf("change %d: nothing newer was written for %s", i, late)
			}
		}
		if writes < 10 || writes > 16 {
			t.Errorf("%d writes, want about one a second", writes)
		}
		api.want(t, "node-a-0: 999")
	})
}

// All devices of a full node take little more writes than they take slices.
func TestTenThousandDevices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var objects []runtime.Object
		for i := range 50 {
			objects = append(objects, configuration(fmt.Sprintf("cam%d", i)))
		}
		api, handler := newAPI(objects...), silent()
		api.start(t, "node-a", handler)
		pass(time.Second)
		handler.report(false, many(200)...)
		pass(2 * time.Second)
		if writes := len(api.called()); writes > 60 {
			t.Errorf("%d writes", writes)
		}
		devices := 0
		for _, s := range api.slices(t) {
			devices += len(s.Spec.Devices)
		}
		if devices != 10_000 {
			t.Errorf("%d devices are reported", devices)
		}
	})
}

// An agent that is killed between any two calls leaves what its next life completes,
// and no device that is there is ever missing from the slices, also when it moves.
func TestKilledBetweenAnyTwoCalls(t *testing.T) {
	for calls := range 8 {
		synctest.Test(t, func(t *testing.T) {
			api, handler := newAPI(configuration("cam")), seeing(many(600)...)
			first := api.start(t, "node-a", handler)
			pass(2 * time.Second)
			api.outage(calls)
			grown := &discovery.Result{Shared: true}
			for _, id := range many(600)[300:] { // half of them go, and others do not fit where they were
				grown.Devices = append(grown.Devices, discovery.Device{ID: id, Properties: map[string]string{"X": strings.Repeat("x", 2000)}})
			}
			handler.change(func() { handler.result = grown })
			pass(time.Minute)
			first.stop()
			reported := func() map[string]int {
				ids := map[string]int{}
				for _, s := range api.slices(t) {
					for _, d := range s.Spec.Devices {
						ids[d.ID]++
					}
				}
				return ids
			}
			for _, d := range grown.Devices {
				if reported()[d.ID] == 0 {
					t.Fatalf("after %d calls device %s is missing", calls, d.ID)
				}
			}
			api.outage(-1)
			api.start(t, "node-a", handler)
			pass(reports.Registering + 2*time.Second)
			is := reported()
			for _, d := range grown.Devices {
				if is[d.ID] != 1 || len(is) != len(grown.Devices) {
					t.Fatalf("after %d calls and a restart %d devices are reported, %s %d times", calls, len(is), d.ID, is[d.ID])
				}
			}
		})
	}
}
