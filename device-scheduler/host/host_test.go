package host

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/devicescheduler"
)

// The plugin translates, the group scheduler places, and both see the pod as its
// author wrote it each time.
func TestPlaceAPod(t *testing.T) {
	h, faults := newHost(t, newDongles())
	mustAdd(t, h, "node", hubs(1))
	asked := pod(2)
	for range 3 {
		if fit := h.Fits(h.Node("node"), asked); !fit.OK || fit.Score != 1 {
			t.Fatalf("%+v", fit)
		}
	}
	got, err := h.Allocate(h.Node("node"), asked)
	if err != nil {
		t.Fatal(err)
	}
	want := types.ResourceLocation{
		"resource/group/hub/0/port/1/seats": "resource/group/hub/0/port/1/seats",
		"resource/group/hub/1/port/2/seats": "resource/group/hub/0/port/0/seats",
	}
	if got.NodeName != "node" || len(got.RunningContainers["main"].AllocateFrom) != len(want) || got.RunningContainers["main"].Requests[dongle] != 2 {
		t.Errorf("%+v", got)
	}
	if diff := cmp.Diff(pod(2), asked); diff != "" {
		t.Errorf("the pod that was given is changed (-was +is):\n%s", diff)
	}
	if err := h.Take("node", "uid", got); err != nil || used(h.Node("node")) != 2 {
		t.Errorf("used %v, %v", h.Node("node").Info().Used, err)
	}
	fit := h.Fits(h.Node("node"), pod(1))
	if fit.OK || len(fit.Reasons) != 1 || fit.Reasons[0].Requested != 1 || fit.Reasons[0].Used != 2 || fit.Reasons[0].Fault != nil {
		t.Errorf("%+v", fit)
	}
	if err := h.Return("node", "uid"); err != nil || used(h.Node("node")) != 0 {
		t.Errorf("used %v, %v", h.Node("node").Info().Used, err)
	}
	faults.expect(t)
}

// A preemption's what-if leaves the host as it is.
func TestWhatIf(t *testing.T) {
	h, faults := newHost(t, newDongles())
	mustAdd(t, h, "node", hubs(1))
	place(t, h, "node", "a", 1)
	place(t, h, "node", "b", 1)
	now := h.Node("node")
	less, err := h.Without(now, "a")
	if err != nil || used(less) != 1 || !h.Fits(less, pod(1)).OK || h.Fits(less, pod(2)).OK {
		t.Errorf("without a: %v %v", less.Info().Used, err)
	}
	p, err := h.Allocate(less, pod(1))
	if err != nil {
		t.Fatal(err)
	}
	if again, err := h.With(less, "c", p); err != nil || used(again) != 2 || !again.Holds("c") || again.Holds("a") {
		t.Errorf("with c: %v %v", again.Info().Used, err)
	}
	if used(now) != 2 || h.Node("node") != now || h.Fits(now, pod(1)).OK {
		t.Error("the what-if changed the host")
	}
	if same, err := h.Without(now, "nobody"); err != nil || same != now {
		t.Error("a pod that holds nothing was returned")
	}
	// Told twice, as after a restart of a watch, it is counted once.
	if again, err := h.With(less, "b", h.nodes["node"].pods["b"].pod); err != nil || used(again) != 1 {
		t.Errorf("twice: %v %v", again.Info().Used, err)
	}
	faults.expect(t)
}

// Used is made from bound pods, whichever comes first, and no news of the node
// loses it.
func TestUsedOutlivesTheNode(t *testing.T) {
	h, _ := newHost(t, newDongles())
	mustAdd(t, h, "node", hubs(2))
	p, err := h.Allocate(h.Node("node"), pod(3))
	if err != nil {
		t.Fatal(err)
	}

	h, faults := newHost(t, newDongles()) // restarted
	if err := h.Take("node", "uid", p); err != nil || h.Node("node") != nil {
		t.Fatal(err)
	}
	advertised := hubs(2)
	advertised.Used = types.ResourceList{"resource/group/hub/0/port/0/seats": 7} // not to be believed
	mustAdd(t, h, "node", advertised)
	if used(h.Node("node")) != 3 {
		t.Errorf("after the start: %v", h.Node("node").Info().Used)
	}
	mustAdd(t, h, "node", hubs(3))
	if used(h.Node("node")) != 3 {
		t.Errorf("after a change: %v", h.Node("node").Info().Used)
	}
	if err := h.RemoveNode("node"); err != nil || h.Node("node") != nil {
		t.Error(err)
	}
	mustAdd(t, h, "node", hubs(2))
	if used(h.Node("node")) != 3 || h.Fits(h.Node("node"), pod(2)).OK {
		t.Errorf("after it came back: %v", h.Node("node").Info().Used)
	}
	if err := h.RemoveNode("node"); err != nil {
		t.Error(err)
	}
	if err := h.Return("node", "uid"); err != nil || len(h.nodes) != 0 {
		t.Errorf("%v, left: %v", err, h.nodes)
	}
	faults.expect(t)
}

// The group scheduler, and the plugins after, see the node as AddNode left it.
func TestAddNodeTranslatesTheNode(t *testing.T) {
	d, calls := newDongles(), 0
	d.addNode = func(node *types.NodeInfo) {
		calls++
		node.Name = "another"
		node.Allocatable = hubs(1).Allocatable
	}
	h, faults := newHost(t, d)
	flat := &types.NodeInfo{KubeCap: types.ResourceList{dongle: 2}}
	mustAdd(t, h, "node", flat)
	mustAdd(t, h, "node", flat) // a heartbeat
	if calls != 1 {
		t.Errorf("AddNode was called %d times for the same node", calls)
	}
	place(t, h, "node", "uid", 2)
	faults.expect(t)
}

func TestWithoutGroupScheduler(t *testing.T) {
	d := newDongles()
	d.group = false
	d.fits = func(*types.NodeInfo, *types.PodInfo) (bool, []devicescheduler.PredicateFailureReason, float64) {
		return true, nil, 0.5
	}
	h, _ := newHost(t, d)
	mustAdd(t, h, "node", hubs(1))
	if fit := h.Fits(h.Node("node"), pod(9)); !fit.OK || fit.Score != 0.5 {
		t.Errorf("%+v", fit)
	}
}

func TestNew(t *testing.T) {
	nameless := newDongles()
	nameless.name = "grpdevice"
	for want, schedulers := range map[string][]devicescheduler.DeviceScheduler{
		`the name "dongle" is taken`:    {newDongles(), newDongles()},
		`the name "grpdevice" is taken`: {nameless},
		"panic":                         {(*dongles)(nil)},
	} {
		if _, err := New(schedulers, Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
	}
}

// Filters run in parallel with each other and with all news, over a plugin that
// locks nothing.
func TestParallel(t *testing.T) {
	h, faults := newHost(t, newDongles())
	var wg sync.WaitGroup
	for i := range 8 {
		name := fmt.Sprintf("node-%d", i)
		mustAdd(t, h, name, hubs(2))
		wg.Go(func() {
			for range 50 {
				h.Fits(h.Node(name), pod(2))
			}
		})
		wg.Go(func() {
			for n := range 20 {
				uid := fmt.Sprint(n)
				place(t, h, name, uid, 2)
				mustAdd(t, h, name, hubs(2+n%2))
				if err := h.Return(name, uid); err != nil {
					t.Error(err)
				}
			}
		})
		wg.Go(func() {
			gone := name + "-gone"
			for range 20 {
				mustAdd(t, h, gone, hubs(1))
				if err := h.RemoveNode(gone); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for i := range 8 {
		if n := h.Node(fmt.Sprintf("node-%d", i)); used(n) != 0 {
			t.Errorf("%s: %v", n.Name(), n.Info().Used)
		}
	}
	faults.expect(t)
}
