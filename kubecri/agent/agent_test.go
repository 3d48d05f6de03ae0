package agent

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

func TestAPluggedInDeviceBecomesAnInstance(t *testing.T) {
	c := configuration("cam", 2)
	api := newAPI(c)
	handler := silent()
	api.start(t, "node-a", handler)
	handler.see("foo0")

	api.wantInstance(t, "cam-8120fe", hasNodes("node-a"))
	want := rightInstance(c, "foo0", "node-a")
	got := api.instance(t, "cam-8120fe")
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(metav1.ObjectMeta{}, "UID", "ResourceVersion")); diff != "" {
		t.Errorf("Instance (-want +got):\n%s", diff)
	}
}

func TestNodesThatRaceForOneInstanceAreAllInIt(t *testing.T) {
	api := newAPI(configuration("cam", 1))
	handler := seeing("foo0", "foo1", "foo2")
	var names []string
	for n := range 8 {
		names = append(names, fmt.Sprintf("node-%d", n))
		api.start(t, names[n], handler)
	}
	for _, id := range []string{"foo0", "foo1", "foo2"} {
		api.wantInstance(t, instanceOf("cam", id), hasNodes(names...))
	}

	handler.see("foo1") // and all race to be out, the last one deletes
	api.wantNoInstance(t, instanceOf("cam", "foo0"))
	api.wantNoInstance(t, instanceOf("cam", "foo2"))
	api.wantInstance(t, instanceOf("cam", "foo1"), hasNodes(names...))
}

func TestLocalDevicesOfOneIDAreAnInstanceOnEachNode(t *testing.T) {
	api := newAPI(configuration("cam", 1))
	api.start(t, "node-a", silent().report(false, "video0"))
	api.start(t, "node-b", silent().report(false, "video0"))
	eventually(t, "an Instance of each node", func() error {
		list, err := api.AkriV0().Instances(ns).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		on := map[string]bool{}
		for _, i := range list.Items {
			on[strings.Join(i.Spec.Nodes, ",")] = !i.Spec.Shared
		}
		if !maps.Equal(on, map[string]bool{"node-a": true, "node-b": true}) {
			return fmt.Errorf("there are local Instances of %v", on)
		}
		return nil
	})
}

func TestARestartWritesNothing(t *testing.T) {
	c := configuration("cam", 2)
	right := rightInstance(c, "foo0", "node-b", "node-a")
	right.Spec.DeviceUsage["cam-8120fe-1"] = "C:pod:node-a"
	api := newAPI(c, right)
	node := api.start(t, "node-a", seeing("foo0", "foo1"))
	api.wantInstance(t, instanceOf("cam", "foo1"), hasNodes("node-a")) // at work
	node.stop()
	if writes := api.writesTo("cam-8120fe"); len(writes) > 0 {
		t.Errorf("a right Instance was written to: %q", writes)
	}
}

func TestNothingIsTakenAwayBeforeTheFirstReport(t *testing.T) {
	c, other := configuration("cam", 1), configuration("other", 1)
	c.Spec.DiscoveryHandler.Name = "not there yet"
	wide := rightInstance(configuration("cam", 5), "foo0", "node-a")
	api := newAPI(c, other, wide)
	node := api.start(t, "node-a", seeing("foo1"))
	api.wantInstance(t, instanceOf("other", "foo1"), hasNodes("node-a")) // at work
	node.stop()
	if writes := api.writesTo("cam-8120fe"); len(writes) > 0 {
		t.Errorf("the Instance was written to before its handler reported: %q", writes)
	}
}

func TestStoppingTheAgentLeavesItsInstances(t *testing.T) {
	api := newAPI(configuration("cam", 1))
	node := api.start(t, "node-a", seeing("foo0")) // which reports nothing when stopped
	api.wantInstance(t, "cam-8120fe", hasNodes("node-a"))
	node.stop()
	api.wantInstance(t, "cam-8120fe", hasNodes("node-a"))
}

func TestInstancesWhoseDeviceWentWhileTheAgentWasAwayGo(t *testing.T) {
	c := configuration("cam", 1)
	api := newAPI(c, rightInstance(c, "foo0", "node-a"), rightInstance(c, "foo1", "node-b", "node-a"))
	api.start(t, "node-a", seeing())
	api.wantNoInstance(t, "cam-8120fe")
	api.wantInstance(t, instanceOf("cam", "foo1"), hasNodes("node-b"))
}

func TestClaimsSurviveADeviceThatOthersStillSee(t *testing.T) {
	api := newAPI(configuration("cam", 2))
	a, b := seeing("foo0"), seeing("foo0")
	api.start(t, "node-a", a)
	api.start(t, "node-b", b)
	api.wantInstance(t, "cam-8120fe", hasNodes("node-a", "node-b"))
	api.edit(t, "cam-8120fe", func(i *v0.Instance) { i.Spec.DeviceUsage["cam-8120fe-0"] = "node-a" })

	a.see()
	api.wantInstance(t, "cam-8120fe", hasNodes("node-b"))
	a.see("foo0")
	api.wantInstance(t, "cam-8120fe", hasNodes("node-a", "node-b"))
	if usage := api.instance(t, "cam-8120fe").Spec.DeviceUsage; usage["cam-8120fe-0"] != "node-a" {
		t.Errorf("the claim is lost: %v", usage)
	}
}

func TestANodeThatJoinsDuringADeletionIsNotLost(t *testing.T) {
	api := newAPI(configuration("cam", 1))
	handler := seeing("foo0")
	api.start(t, "node-a", handler)
	api.wantInstance(t, "cam-8120fe", hasNodes("node-a"))
	api.mu.Lock()
	api.beforeDelete = func(i *v0.Instance) { i.Spec.Nodes = append(i.Spec.Nodes, "node-b") }
	api.mu.Unlock()
	handler.see()
	api.wantInstance(t, "cam-8120fe", hasNodes("node-b"))
}

func TestInstancesFollowTheConfiguration(t *testing.T) {
	c := configuration("cam", 2)
	api := newAPI(c)
	api.start(t, "node-a", seeing("foo0"))
	api.wantInstance(t, "cam-8120fe", hasNodes("node-a"))

	c = c.DeepCopy()
	c.Spec.Capacity, c.Spec.BrokerProperties = 3, map[string]string{"URL": "rtsp"}
	api.configure(t, c)
	api.wantInstance(t, "cam-8120fe", func(i *v0.Instance) bool {
		return i.Spec.Capacity == 3 && len(i.Spec.DeviceUsage) == 3 && i.Spec.BrokerProperties["URL"] == "rtsp"
	})

	api.edit(t, "cam-8120fe", func(i *v0.Instance) { i.Spec.DeviceUsage["cam-8120fe-2"] = "C:pod:node-b" })
	c = c.DeepCopy()
	c.Spec.Capacity = 1
	api.configure(t, c)
	shrunk := func(want map[string]string) func(*v0.Instance) bool {
		return func(i *v0.Instance) bool { return i.Spec.Capacity == 1 && maps.Equal(i.Spec.DeviceUsage, want) }
	}
	api.wantInstance(t, "cam-8120fe", shrunk(map[string]string{"cam-8120fe-0": "", "cam-8120fe-2": "C:pod:node-b"}))
	api.edit(t, "cam-8120fe", func(i *v0.Instance) { i.Spec.DeviceUsage["cam-8120fe-2"] = "" }) // released
	api.wantInstance(t, "cam-8120fe", shrunk(map[string]string{"cam-8120fe-0": ""}))
}

func TestHandEditsAreRepaired(t *testing.T) {
	api := newAPI(configuration("cam", 1))
	api.start(t, "node-a", seeing("foo0"))
	api.wantInstance(t, "cam-8120fe", hasNodes("node-a"))
	right := api.instance(t, "cam-8120fe").Spec
	isRight := func(i *v0.Instance) bool { return cmp.Equal(i.Spec, right) }

	api.edit(t, "cam-8120fe", func(i *v0.Instance) { i.Spec = v0.InstanceSpec{ConfigurationName: "cam"} })
	api.wantInstance(t, "cam-8120fe", isRight)

	api.edit(t, "cam-8120fe", func(i *v0.Instance) { i.Spec.ConfigurationName = "ca" })
	api.wantInstance(t, "cam-8120fe", isRight)

	uid := api.instance(t, "cam-8120fe").UID
	if err := api.AkriV0().Instances(ns).Delete(t.Context(), "cam-8120fe", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	api.wantInstance(t, "cam-8120fe", func(i *v0.Instance) bool { return i.UID != uid && isRight(i) })
}

func TestADeletedConfigurationTakesItsInstances(t *testing.T) {
	shared := rightInstance(configuration("cam", 1), "foo1", "node-a", "node-b")
	orphan := rightInstance(configuration("former", 1), "foo0", "node-a")
	foreign := rightInstance(configuration("former", 1), "foo1", "node-b")
	api := newAPI(configuration("cam", 1), shared, orphan, foreign)
	node := api.start(t, "node-a", seeing("foo0", "foo1"))
	api.wantInstance(t, "cam-8120fe", hasNodes("node-a"))
	api.wantNoInstance(t, orphan.Name)

	if err := api.AkriV0().Configurations(ns).Delete(t.Context(), "cam", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	api.wantNoInstance(t, "cam-8120fe")
	api.wantInstance(t, shared.Name, hasNodes("node-b"))
	if _, ok := node.Device("cam-8120fe"); ok {
		t.Error("the device of a deleted Configuration is still there")
	}
	node.stop()
	if writes := api.writesTo(foreign.Name); len(writes) > 0 {
		t.Errorf("an Instance without this node was written to: %q", writes)
	}
}

func TestAConfigurationMadeAnewOwnsItsInstances(t *testing.T) {
	api := newAPI(configuration("cam", 1))
	api.start(t, "node-a", seeing("foo0"))
	api.wantInstance(t, "cam-8120fe", hasNodes("node-a"))
	anew := configuration("cam", 1)
	anew.UID = "anew"
	api.configure(t, anew)
	api.wantInstance(t, "cam-8120fe", func(i *v0.Instance) bool {
		return len(i.OwnerReferences) == 1 && i.OwnerReferences[0].UID == "anew"
	})
}

func TestTheDesiredStateOutlivesAnOutage(t *testing.T) {
	api := newAPI(configuration("cam", 1))
	handler := seeing("foo0")
	node := api.start(t, "node-a", handler)
	api.wantInstance(t, "cam-8120fe", hasNodes("node-a"))

	api.setDown(true)
	handler.see("foo1")
	eventually(t, "several attempts", func() error {
		if node.instances.NumRequeues(keyOf(configuration("cam", 1), instanceOf("cam", "foo1"))) < 2 {
			return errors.New("not tried again")
		}
		return nil
	})
	if _, ok := node.Device("cam-8120fe"); ok {
		t.Error("the device is still there")
	}
	api.setDown(false)
	api.wantInstance(t, instanceOf("cam", "foo1"), hasNodes("node-a"))
	api.wantNoInstance(t, "cam-8120fe")
}

func TestNewSaysWhatIsMissing(t *testing.T) {
	_, err := New(Config{NodeName: "node-a"})
	if err == nil || !strings.Contains(err.Error(), "Recorder is missing") || strings.Contains(err.Error(), "NodeName") {
		t.Errorf("New() = %v, want an error that names the Recorder and not the NodeName", err)
	}
}
