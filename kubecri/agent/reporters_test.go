package agent

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubeslot/kubeslot/kubecri/agent/deviceslices"
	"github.com/kubeslot/kubeslot/kubecri/agent/reports"
	v0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// A node that is not selected changes nothing of what those that are say, whatever its
// name; nor does one that reports later. Where other Nodes may not be read, the oldest
// report counts.
func TestPropertiesOfANodeThatIsNotSelected(t *testing.T) {
	for name, forbidden := range map[string]bool{"Nodes can be read": false, "Nodes cannot be read": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := configuration("cam")
				c.Spec.Discovery = &v0.Discovery{NodeSelector: map[string]string{"net": "shop"}}
				api := newAPI(c)
				for _, name := range []string{"a-rogue", "b-early", "n1", "n2"} {
					n := node(name)
					n.Labels = map[string]string{"net": map[bool]string{true: "shop", false: "other"}[name[0] == 'n']}
					if err := api.kube.Tracker().Add(n); err != nil {
						t.Fatal(err)
					}
				}
				if forbidden {
					api.kube.PrependReactor("get", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
						return true, nil, apierrors.NewForbidden(corev1.Resource("nodes"), "", errors.New("no"))
					})
				}
				report := func(at int64, node, url string) {
					slice := &v1alpha1.DeviceSlice{
						ObjectMeta: metav1.ObjectMeta{Name: node + "-0", Labels: map[string]string{deviceslices.DiscoveryLabel: "cam"}, CreationTimestamp: metav1.Unix(at, 0)},
						Spec: v1alpha1.DeviceSliceSpec{NodeName: node, Devices: []v1alpha1.Device{{Configuration: reports.Reference(c),
							ID: "foo0", Hash: "8120fe", Shared: true, Properties: map[string]string{"URL": url}}}}}
					if _, err := api.KubeslotV1alpha1().DeviceSlices().Create(t.Context(), slice, metav1.CreateOptions{}); err != nil {
						t.Fatal(err)
					}
				}
				agent := api.start(t, "n2", silent())
				report(20, "n1", "rtsp://right")
				pass(time.Second)
				report(30, "a-rogue", "rtsp://rogue") // first by name
				pass(time.Second)
				if d, _ := agent.Device("cam-8120fe"); d.Properties["URL"] != "rtsp://right" {
					t.Errorf("beside a later one: %v", d)
				}
				if forbidden {
					return
				}
				report(10, "b-early", "rtsp://early") // and the oldest
				pass(time.Second)
				if d, _ := agent.Device("cam-8120fe"); d.Properties["URL"] != "rtsp://right" {
					t.Errorf("beside an older one: %v", d)
				}
				if err := api.KubeslotV1alpha1().DeviceSlices().Delete(t.Context(), "n1-0", metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
				pass(time.Second)
				if reached, known := agent.Reached("cam"); reached != 0 || !known {
					t.Errorf("reaches %d devices by what nodes say that are not selected", reached)
				}
			})
		})
	}
}

// All slices of a node count from when it is known to be selected: pods are notified of each one's devices.
func TestAllSlicesOfANodeThatIsSelected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := configuration("cam")
		c.Spec.Discovery = &v0.Discovery{NodeSelector: map[string]string{"net": "shop"}}
		api := newAPI(c)
		for _, name := range []string{"n1", "n2"} {
			n := node(name)
			n.Labels = map[string]string{"net": "shop"}
			if err := api.kube.Tracker().Add(n); err != nil {
				t.Fatal(err)
			}
		}
		var away atomic.Bool // so that both slices wait for one answer
		away.Store(true)
		api.kube.PrependReactor("get", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
			return away.Load(), nil, errors.New("connection refused")
		})
		agent := api.start(t, "n2", silent())
		slices := api.KubeslotV1alpha1().DeviceSlices()
		for _, id := range []string{"foo0", "foo1"} {
			slice := &v1alpha1.DeviceSlice{
				ObjectMeta: metav1.ObjectMeta{Name: "n1-" + id,
					Labels: map[string]string{deviceslices.DiscoveryLabel: "cam"}},
				Spec: v1alpha1.DeviceSliceSpec{NodeName: "n1", Devices: []v1alpha1.Device{{
					Configuration: reports.Reference(c), ID: id, Shared: true,
					Hash: slot.InstanceHash(id, true, "", slot.ShortHash)}}}}
			if _, err := slices.Create(t.Context(), slice, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		pass(time.Second)
		away.Store(false)
		pass(askRetry)
		if reached, _ := agent.Reached("cam"); reached != 2 {
			t.Fatalf("reaches %d devices, want 2", reached)
		}
		for _, id := range []string{"foo0", "foo1"} {
			if err := slices.Delete(t.Context(), "n1-"+id, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			agent.wantNotified(t, instanceOf("cam", id)+" DeviceGone ")
		}
	})
}

// A node that got the label just after it was found to lack it counts, though it writes its slice no more.
func TestANodeThatIsSelectedAMomentLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := configuration("cam")
		c.Spec.Discovery = &v0.Discovery{NodeSelector: map[string]string{"net": "shop"}}
		api := newAPI(c)
		n1, n2 := node("n1"), node("n2")
		n2.Labels = map[string]string{"net": "shop"}
		for _, n := range []*corev1.Node{n1, n2} {
			if err := api.kube.Tracker().Add(n); err != nil {
				t.Fatal(err)
			}
		}
		agent := api.start(t, "n2", silent())
		slice := &v1alpha1.DeviceSlice{
			ObjectMeta: metav1.ObjectMeta{Name: "n1-0", Labels: map[string]string{deviceslices.DiscoveryLabel: "cam"}},
			Spec: v1alpha1.DeviceSliceSpec{NodeName: "n1", Devices: []v1alpha1.Device{{
				Configuration: reports.Reference(c), ID: "foo0", Hash: "8120fe", Shared: true}}}}
		slices := api.KubeslotV1alpha1().DeviceSlices()
		if _, err := slices.Create(t.Context(), slice, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		if reached, _ := agent.Reached("cam"); reached != 0 {
			t.Fatalf("reaches %d devices by a node that is not selected", reached)
		}
		n1 = n1.DeepCopy()
		n1.Labels = n2.Labels
		if _, err := api.kube.CoreV1().Nodes().Update(t.Context(), n1, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		api.edit(t, "n1-0", func(s *v1alpha1.DeviceSlice) {
			s.Spec.Devices[0].Properties = map[string]string{"URL": "x"}
		})
		pass(askAgain + askRetry)
		if reached, _ := agent.Reached("cam"); reached != 1 {
			t.Errorf("reaches %d devices, want the one of the node that is selected now", reached)
		}
	})
}

// Of a slice, what is not believed changes nothing of the device that has the hash.
func TestADeviceThatIsNotWhatItSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := configuration("cam")
		c.Spec.Discovery = &v0.Discovery{}
		api := newAPI(c)
		agent := api.start(t, "node-a", silent())
		slice := &v1alpha1.DeviceSlice{
			ObjectMeta: metav1.ObjectMeta{Name: "node-b-0",
				Labels: map[string]string{deviceslices.DiscoveryLabel: "cam"}},
			Spec: v1alpha1.DeviceSliceSpec{NodeName: "node-b", Devices: []v1alpha1.Device{
				{Configuration: reports.Reference(c), ID: "other", Hash: "8120fe", Shared: true},
				{Configuration: reports.Reference(c), ID: "foo0", Hash: "8120fe", Shared: true, Gone: true},
				{Configuration: reports.Reference(c), ID: "foo0", Hash: "8120fe", Shared: true,
					Properties: map[string]string{"URL": "x"}}}}}
		slices := api.KubeslotV1alpha1().DeviceSlices()
		if _, err := slices.Create(t.Context(), slice, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		if d, ok := agent.Device("cam-8120fe"); !ok || d.ID != "foo0" || d.Properties["URL"] != "x" {
			t.Errorf("the device is %v, %t", d, ok)
		}
	})
}
