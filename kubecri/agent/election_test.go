package agent

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubeslot/kubeslot/kubecri/agent/deviceslices"
	"github.com/kubeslot/kubeslot/kubecri/agent/reports"
	v0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// shop is a cluster of nodes that reach the network of one Configuration's devices,
// and of node-x, which does not.
type shop struct {
	*api
	c        *v0.Configuration
	nodes    map[string]*running
	handlers map[string]*echoes
}

func openShop(t *testing.T, replicas int32, nodes ...string) *shop {
	c := configuration("cam")
	c.Spec.Discovery = &v0.Discovery{Replicas: replicas, NodeSelector: map[string]string{"net": "shop"}}
	s := &shop{api: newAPI(c), c: c, nodes: map[string]*running{}, handlers: map[string]*echoes{}}
	for _, name := range append(nodes, "node-x") {
		n := node(name)
		n.Labels = map[string]string{"net": map[bool]string{true: "shop", false: "other"}[name != "node-x"]}
		if err := s.kube.Tracker().Add(n); err != nil {
			t.Fatal(err)
		}
		s.handlers[name] = seeing("foo0")
		s.nodes[name] = s.start(t, name, s.handlers[name])
	}
	pass(3 * time.Second)
	return s
}

// discover are the nodes whose handlers run, in order.
func (s *shop) discover() []string {
	var names []string
	for name, h := range s.handlers {
		h.mu.Lock()
		if h.running > 0 {
			names = append(names, name)
		}
		h.mu.Unlock()
	}
	slices.Sort(names)
	return names
}

// report are the nodes whose slices have the device.
func (s *shop) report(t *testing.T) []string {
	var names []string
	for _, slice := range s.slices(t) {
		if len(slice.Spec.Devices) > 0 && slice.Labels[deviceslices.DiscoveryLabel] == "cam" {
			names = append(names, slice.Spec.NodeName)
		}
	}
	return names
}

// anyNumber of nodes may report.
const anyNumber = -1

// want passes time, in which the device must be reported by somebody at any moment.
func (s *shop) want(t *testing.T, d time.Duration, discover, report int) {
	t.Helper()
	for range d / (100 * time.Millisecond) {
		pass(100 * time.Millisecond)
		if len(s.report(t)) == 0 {
			t.Fatal("nobody reports the device")
		}
	}
	if is := s.discover(); len(is) != discover {
		t.Errorf("%q discover, want %d", is, discover)
	}
	if is := s.report(t); report != anyNumber && len(is) != report {
		t.Errorf("%q report the device, want %d", is, report)
	}
}

func TestAFewNodesDiscoverForAllThatAreSelected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openShop(t, 2, "n1", "n2", "n3", "n4")
		s.c.Spec.BrokerProperties = map[string]string{"URL": "rtsp"}
		s.configure(t, s.c)
		s.want(t, time.Minute, 2, 2)
		s.called()
		pass(10 * time.Minute)
		if calls := s.called(); len(calls) != 3*20 || !strings.HasPrefix(calls[0], "update kubeslot-discovery-cam-0") {
			t.Errorf("%d calls in ten minutes, want three renewals in 30 s", len(calls))
		}
		for name, n := range s.nodes {
			device, err := n.WaitDevice(t.Context(), "cam-8120fe")
			all, _ := n.Devices()
			reached, known := n.Reached("cam")
			if name == "node-x" {
				if err == nil || !strings.Contains(err.Error(), "nodeSelector") || len(all) > 0 || reached != 0 || !known {
					t.Errorf("node-x: WaitDevice() = %v, reaches %d", err, reached)
				}
				continue
			}
			if err != nil || device.Properties["ID"] != "foo0" || device.Properties["URL"] != "rtsp" || len(all) != 1 || reached != 1 || !known {
				t.Errorf("%s: WaitDevice() = %v, %v; %d devices; reaches %d", name, device, err, len(all), reached)
			}
			if _, err := n.WaitDevice(t.Context(), "cam-a19705"); err == nil || !strings.Contains(err.Error(), "none of the nodes") {
				t.Errorf("WaitDevice() of no device = %v", err)
			}
		}
		for _, h := range s.handlers {
			h.see("foo0", "foo1")
		}
		pass(time.Second)
		if reached, _ := s.nodes["n1"].Reached("cam"); reached != 2 {
			t.Errorf("reaches %d devices, want 2", reached)
		}
	})
}

// Reports of nodes are believed as far as they can be checked.
func TestReportsThatAreNotBelieved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := configuration("cam")
		c.Spec.Discovery = &v0.Discovery{}
		right := v1alpha1.Device{Configuration: reports.Reference(c), ID: "foo0", Hash: "8120fe", Shared: true}
		id, local, long, other := right, right, right, right
		id.ID = "foo1"
		local.Shared, local.Hash = false, slot.InstanceHash("foo0", false, "rogue", slot.ShortHash)
		long.Hash = slot.InstanceHash("foo0", true, "", slot.LongHash)
		other.Configuration.Namespace = "attic"
		rogue := &v1alpha1.DeviceSlice{
			ObjectMeta: metav1.ObjectMeta{Name: "rogue-0", Labels: map[string]string{deviceslices.DiscoveryLabel: "cam"}},
			Spec:       v1alpha1.DeviceSliceSpec{NodeName: "rogue", Devices: []v1alpha1.Device{id, local, long, other}}}
		api := newAPI(c)
		agent := api.start(t, "node-a", silent())
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := agent.WaitDevice(ctx, "cam-8120fe"); err == nil || !strings.Contains(err.Error(), "none of the nodes") {
			t.Errorf("WaitDevice() without any slice = %v", err)
		}
		if _, err := api.KubeslotV1alpha1().DeviceSlices().Create(t.Context(), rogue, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		if reached, known := agent.Reached("cam"); reached != 0 || !known {
			t.Errorf("reaches %d devices", reached)
		}
		api.edit(t, "rogue-0", func(s *v1alpha1.DeviceSlice) { s.Spec.Devices = append(s.Spec.Devices, right) })
		pass(time.Second)
		if reached, _ := agent.Reached("cam"); reached != 1 || agent.Gone("cam-8120fe") {
			t.Errorf("reaches %d devices", reached)
		}
	})
}

// However a holder ends, another discovers in time, and the device stays.
func TestHandover(t *testing.T) {
	for name, tc := range map[string]struct {
		end      func(t *testing.T, s *shop, holder string)
		within   time.Duration
		left     int // how many report the device in the end
		discover int
	}{
		"released at shutdown": {func(t *testing.T, s *shop, holder string) { s.nodes[holder].stop() }, 2 * time.Second, 2, 1},
		"dead": {func(t *testing.T, s *shop, holder string) {
			s.outage(0)
			s.nodes[holder].stop()
			s.outage(-1)
		}, leaseDuration + 2*time.Second, 2, 1},
		"killed and restarted": {func(t *testing.T, s *shop, holder string) {
			s.outage(0)
			s.nodes[holder].stop()
			s.outage(-1)
			s.start(t, holder, s.handlers[holder])
		}, 2 * time.Second, 1, 1},
		"restarted": {func(t *testing.T, s *shop, holder string) {
			s.nodes[holder].stop()
			pass(2 * time.Second)
			s.start(t, holder, silent())
		}, 2 * time.Second, 1, 1},
		"robbed": {func(t *testing.T, s *shop, holder string) {
			client := s.kube.CoordinationV1().Leases(ns)
			lease, err := client.Get(t.Context(), "kubeslot-discovery-cam-0", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			lease = lease.DeepCopy()
			lease.Spec.HolderIdentity = new("rogue") // which never renews it
			if _, err := client.Update(t.Context(), lease, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			pass(5 * time.Second)
			s.handlers[holder] = silent()
		}, leaseDuration + 2*time.Second, 1, 1},
		"robbed for ever": {func(t *testing.T, s *shop, holder string) {
			client := s.kube.CoordinationV1().Leases(ns)
			ctx, stop := context.WithCancel(t.Context())
			var thief sync.WaitGroup
			t.Cleanup(func() { stop(); thief.Wait() })
			thief.Go(func() {
				for i := 0; ctx.Err() == nil; i++ {
					if lease, err := client.Get(ctx, "kubeslot-discovery-cam-0", metav1.GetOptions{}); err == nil {
						lease = lease.DeepCopy()
						lease.Spec.HolderIdentity, lease.Spec.LeaseTransitions = new("rogue"), new(int32(i))
						_, _ = client.Update(ctx, lease, metav1.UpdateOptions{}) // a conflict is the holder's last renewal
					}
					time.Sleep(time.Second)
				}
			})
			pass(checkAfter + handover + 10*time.Second)
		}, 2 * time.Second, 1, 1},
		"two are wanted": {func(t *testing.T, s *shop, holder string) {
			c := s.c.DeepCopy()
			c.Spec.Discovery.Replicas = 2
			s.configure(t, c)
		}, 2 * time.Second, 2, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := openShop(t, 1, "n1", "n2", "n3")
				holder := s.discover()[0]
				s.want(t, time.Minute, 1, 1)
				tc.end(t, s, holder)
				s.want(t, tc.within, tc.discover, anyNumber)
				s.want(t, 2*handover, tc.discover, tc.left)
			})
		})
	}
}

// A Lease lasts as long as its holder says, which may be of a version that renews more often, and no
// longer than those of this one.
func TestHowLongALeaseLasts(t *testing.T) {
	for seconds, want := range map[int32]time.Duration{15: 15 * time.Second, 90: leaseDuration, 86400: leaseDuration} {
		lease := &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{LeaseDurationSeconds: &seconds}}
		if got := lasts(lease); got != want {
			t.Errorf("a Lease of %d s lasts %v, want %v", seconds, got, want)
		}
	}
	if got := lasts(&coordinationv1.Lease{}); got != leaseDuration {
		t.Errorf("a Lease that does not say lasts %v, want %v", got, leaseDuration)
	}
}

// A node that is no longer selected does not reach the devices, so it does not wait.
func TestANodeThatIsNoLongerSelectedStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openShop(t, 1, "n1", "n2")
		holder := s.discover()[0]
		if _, err := s.kube.CoreV1().Nodes().Update(t.Context(), node(holder), metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		pass(3 * time.Second)
		if is := s.discover(); len(is) != 1 || is[0] == holder || !slices.Equal(is, s.report(t)) {
			t.Errorf("%q discover, %q report, want the other than %s", is, s.report(t), holder)
		}
	})
}

// Holders discover on while the API server is away, and what they report stays.
func TestDiscoverersOutliveAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openShop(t, 2, "n1", "n2", "n3", "n4")
		s.outage(0)
		s.want(t, 10*time.Minute, 2, 2)
		s.outage(-1)
		s.want(t, time.Minute, 2, 2)
	})
}

func TestWhatKeepsANodeFromReachingIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := configuration("cam")
		c.Spec.Discovery = &v0.Discovery{}
		api := newAPI(c)
		api.kube.PrependReactor("create", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, errors.New("forbidden")
		})
		api.PrependReactor("list", "deviceslices", func(action clienttesting.Action) (bool, runtime.Object, error) {
			if action.(clienttesting.ListAction).GetListRestrictions().Labels.Empty() {
				return false, nil, nil
			}
			return true, nil, errors.New("denied")
		})
		agent := api.start(t, "node-a", seeing("foo0"))
		api.want(t, "node-a-0: !NoLease")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := agent.WaitDevice(ctx, "cam-8120fe")
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "kubeslot.io/discovery=cam, which cannot be read: ") || !strings.Contains(err.Error(), "denied") {
			t.Errorf("WaitDevice() = %v", err)
		}
		if agent.Gone("cam-8120fe") {
			t.Error("the device is gone, though nothing could be read")
		}
		if _, known := agent.Reached("cam"); known {
			t.Error("it is known what is reached")
		}
	})
}

// A node whose handler does not work leaves the Lease to another, whose handler may.
func TestANodeWithoutAWorkingHandlerHandsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openShop(t, 1, "n1", "n2")
		holder := s.discover()[0]
		broken := s.handlers[holder]
		broken.change(func() { broken.fail = func(int) error { return errors.New("stream broke") } })
		s.want(t, reports.UnschedulableAfter+checkAfter+2*time.Second, 1, anyNumber)
		if is := s.discover(); is[0] == holder {
			t.Errorf("%s discovers on", holder)
		}
		s.want(t, 2*handover+time.Minute, 1, 1)
		if is := s.report(t); is[0] == holder {
			t.Errorf("%s reports on", holder)
		}
	})
}

// A handler that was away for long, and then takes its time to report, is given it.
func TestAHandlerThatIsBackMayTakeItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openShop(t, 1, "n1")
		h := s.handlers["n1"]
		h.change(func() { h.fail = func(int) error { return errors.New("stream broke") } })
		pass(time.Minute)
		h.change(func() { h.fail, h.result = nil, nil })
		pass(2 * time.Minute)
		runs := h.ran()
		pass(20 * time.Second)
		if is := s.discover(); len(is) != 1 || h.ran() != runs {
			t.Errorf("%q discover, and the handler was started %d times more", is, h.ran()-runs)
		}
		h.see("foo0", "foo1")
		s.want(t, time.Minute, 1, 1)
		if n := len(s.slices(t)[0].Spec.Devices); n != 2 {
			t.Errorf("%d devices are reported, want 2", n)
		}
	})
}

// Where no handler works the nodes take turns, and the device goes when its time is over.
func TestNoNodeHasAWorkingHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openShop(t, 1, "n1", "n2")
		for _, h := range s.handlers {
			h.change(func() { h.fail = func(int) error { return errors.New("stream broke") } })
		}
		s.want(t, 20*time.Second, 0, 1)
		pass(6 * time.Minute)
		if is := s.report(t); len(is) > 0 {
			t.Errorf("%s report on", is)
		}
		s.called()
		pass(10 * time.Minute)
		if n := len(s.called()); n > 2*120+60 {
			t.Errorf("%d calls in ten minutes", n)
		}
	})
}
