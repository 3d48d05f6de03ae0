package host

import (
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/contain"
	"github.com/kubeslot/kubeslot/types/devicescheduler"
)

type reasonsFrom = []devicescheduler.PredicateFailureReason

// badReason panics when it is asked.
type badReason struct{}

func (badReason) GetReason() string                                  { panic("no reason") }
func (badReason) GetInfo() (types.ResourceName, int64, int64, int64) { return "", 0, 0, 0 }

// Whatever a plugin answers, the pod does not fit, the reason says which plugin,
// and the fault is counted.
func TestBadAnswersToFits(t *testing.T) {
	for name, tc := range map[string]struct {
		fits  func(*types.NodeInfo, *types.PodInfo) (bool, reasonsFrom, float64)
		fault FaultKind
		text  string
	}{
		"panic":        {func(*types.NodeInfo, *types.PodInfo) (bool, reasonsFrom, float64) { panic("lost") }, Panicked, "panic: lost"},
		"not a number": {func(*types.NodeInfo, *types.PodInfo) (bool, reasonsFrom, float64) { return true, nil, math.NaN() }, Lied, "the score NaN"},
		"infinite":     {func(*types.NodeInfo, *types.PodInfo) (bool, reasonsFrom, float64) { return true, nil, math.Inf(1) }, Lied, "the score +Inf"},
		"bad reason": {func(*types.NodeInfo, *types.PodInfo) (bool, reasonsFrom, float64) {
			return false, reasonsFrom{badReason{}}, 0
		}, Panicked, "panic: no reason"},
		"no reason":    {func(*types.NodeInfo, *types.PodInfo) (bool, reasonsFrom, float64) { return false, nil, 7 }, "", "dongle refuses the node and does not say why"},
		"a nil reason": {func(*types.NodeInfo, *types.PodInfo) (bool, reasonsFrom, float64) { return false, reasonsFrom{nil}, 0 }, "", "does not say why"},
		"gives out slot": {func(_ *types.NodeInfo, p *types.PodInfo) (bool, reasonsFrom, float64) {
			p.RunningContainers["main"].AllocateFrom["akri.sh/x/0"] = "x-1-0"
			return true, nil, 0
		}, Lied, "slots are given out by the scheduler itself"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDongles()
			d.fits = tc.fits
			h, faults := newHost(t, d)
			mustAdd(t, h, "node", hubs(1))
			fit := h.Fits(h.Node("node"), pod(1))
			if fit.OK || fit.Score != 0 || len(fit.Reasons) != 1 || fit.Reasons[0].Plugin != "dongle" || !strings.Contains(fit.Reasons[0].Text, tc.text) {
				t.Errorf("%+v", fit)
			}
			if tc.fault != "" {
				faults.expect(t, "dongle PodFitsDevice "+string(tc.fault))
			} else {
				faults.expect(t)
			}
		})
	}
}

// A plugin that writes all over its arguments changes only its copies.
func TestMutatedInputs(t *testing.T) {
	vandal := func(node *types.NodeInfo, p *types.PodInfo) {
		clear(node.Allocatable)
		node.Used["resource/group/hub/0/port/0/seats"] = 1
		node.KubeCap["x"], node.Scorer["x"] = 1, 1 // no map is nil
		p.Requests["x"], p.Name = 1, "other"
		c := p.RunningContainers["main"]
		c.KubeRequests["x"], c.Requests[dongle], c.Scorer["x"] = 1, 99, 1
		delete(p.RunningContainers, "main")
		p.InitContainers["new"] = types.ContainerInfo{}
	}
	first, second := newDongles(), newDongles()
	first.name, first.group = "a-vandal", false
	first.fits = func(n *types.NodeInfo, p *types.PodInfo) (bool, reasonsFrom, float64) {
		vandal(n, p)
		return true, nil, 0
	}
	first.alloc = func(n *types.NodeInfo, p *types.PodInfo) error { vandal(n, p); return nil }
	h, faults := newHost(t, first, second)
	mustAdd(t, h, "node", hubs(1))
	before := h.Node("node").Info()
	asked := pod(2)
	fit := h.Fits(h.Node("node"), asked)
	got, err := h.Allocate(h.Node("node"), asked)
	if !fit.OK || err != nil || len(got.RunningContainers["main"].AllocateFrom) != 2 || len(got.InitContainers) != 0 || got.Name != "pod" {
		t.Errorf("%+v %+v %v", fit, got, err)
	}
	if diff := cmp.Diff(pod(2), asked) + cmp.Diff(before, h.Node("node").Info()); diff != "" {
		t.Error(diff)
	}
	faults.expect(t)
}

func TestBadAllocate(t *testing.T) {
	var panicked *contain.PanicError
	for want, alloc := range map[string]func(*types.NodeInfo, *types.PodInfo) error{
		"device scheduler dongle: PodAllocate for node node and pod pod: no more":     func(*types.NodeInfo, *types.PodInfo) error { return errors.New("no more") },
		"device scheduler dongle: PodAllocate for node node and pod pod: panic: lost": func(*types.NodeInfo, *types.PodInfo) error { panic("lost") },
	} {
		d := newDongles()
		d.alloc = alloc
		h, _ := newHost(t, d)
		mustAdd(t, h, "node", hubs(1))
		_, err := h.Allocate(h.Node("node"), pod(1))
		if err == nil || err.Error() != want || strings.Contains(want, "panic") != errors.As(err, &panicked) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	// Two that give one request a device: the second fails.
	first, second := newDongles(), newDongles()
	second.name, second.group = "z", false
	second.group, first.group = false, false
	first.alloc = func(_ *types.NodeInfo, p *types.PodInfo) error {
		p.RunningContainers["main"].AllocateFrom["r"] = "a"
		return nil
	}
	second.alloc = func(_ *types.NodeInfo, p *types.PodInfo) error {
		p.RunningContainers["main"].AllocateFrom["r"] = "b"
		return nil
	}
	h, faults := newHost(t, first, second)
	mustAdd(t, h, "node", hubs(1))
	if _, err := h.Allocate(h.Node("node"), pod(1)); err == nil || !strings.Contains(err.Error(), `from "a" to "b"`) {
		t.Error(err)
	}
	faults.expect(t, "z PodAllocate invalid")
}

// A node that a plugin could not be told of takes no pods until it could.
func TestFailedAddNode(t *testing.T) {
	d, broken := newDongles(), true
	d.addNode = func(*types.NodeInfo) {
		if broken {
			panic("bus is down")
		}
	}
	h, faults := newHost(t, d)
	if err := h.AddNode("node", hubs(1)); err == nil {
		t.Fatal("no error")
	}
	fit := h.Fits(h.Node("node"), pod(1))
	if fit.OK || fit.Reasons[0].Fault == nil || fit.Reasons[0].Text != "device scheduler dongle failed in AddNode: panic: bus is down" {
		t.Errorf("%+v", fit)
	}
	if _, err := h.Allocate(h.Node("node"), pod(1)); err == nil {
		t.Error("allocated on a node that the plugin does not know")
	}
	broken = false
	if err := h.Retry(); err != nil || !h.Fits(h.Node("node"), pod(1)).OK {
		t.Error(err)
	}
	faults.expect(t, "dongle AddNode panic")
}

// What a pod holds that its plugin cannot count is not given to another.
func TestBadAccounting(t *testing.T) {
	d := newDongles()
	h, faults := newHost(t, d)
	mustAdd(t, h, "node", hubs(1))
	place(t, h, "node", "a", 1)

	// An error concerns this pod alone.
	d.take = func(*types.NodeInfo, *types.PodInfo) error { return errors.New("not mine") }
	p, err := h.Allocate(h.Node("node"), pod(1))
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Take("node", "b", p); err == nil || used(h.Node("node")) != 2 {
		t.Error(err, h.Node("node").Info().Used)
	}
	// It did not take, so it is not asked to return.
	d.giveUp = func(*types.NodeInfo, *types.PodInfo) error { panic("never took") }
	if err := h.Return("node", "b"); err != nil || used(h.Node("node")) != 1 {
		t.Error(err, h.Node("node").Info().Used)
	}
	faults.expect(t, "dongle TakePodResources error")

	// Returning goes wrong: Used is made again from the pods that stay.
	d.take = nil
	place(t, h, "node", "c", 1)
	if err := h.Return("node", "c"); err == nil || used(h.Node("node")) != 1 || !h.Fits(h.Node("node"), pod(1)).OK {
		t.Error(err, h.Node("node").Info().Used)
	}
	faults.expect(t, "dongle ReturnPodResources panic")

	// A lie leaves open what is used: the node is closed.
	d.take = func(n *types.NodeInfo, _ *types.PodInfo) error { n.Used["x"] = -1; return nil }
	if err := h.Take("node", "d", pod(0)); err == nil || h.Fits(h.Node("node"), pod(1)).OK {
		t.Error(err)
	}
	faults.expect(t, "dongle TakePodResources invalid")
	d.take = nil
	if err := h.Retry(); err != nil || !h.Fits(h.Node("node"), pod(1)).OK {
		t.Error(err)
	}
}

// A plugin that hangs costs one timeout, not one a call, and is back when its
// call has returned.
func TestHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, release := newDongles(), make(chan struct{})
		d.fits = func(*types.NodeInfo, *types.PodInfo) (bool, reasonsFrom, float64) { <-release; return true, nil, 0 }
		h, faults := newHost(t, d)
		mustAdd(t, h, "node", hubs(1))
		start := time.Now()
		fit := h.Fits(h.Node("node"), pod(1))
		if fit.OK || !errors.Is(fit.Reasons[0].Fault, contain.ErrTimeout) || time.Since(start) != DefaultTimeout {
			t.Errorf("%+v after %s", fit, time.Since(start))
		}
		start = time.Now()
		if fit := h.Fits(h.Node("node"), pod(1)); fit.OK || fit.Reasons[0].Fault.Kind != Hanging {
			t.Errorf("%+v", fit)
		}
		if err := h.AddNode("late", hubs(1)); err == nil || time.Since(start) != 0 {
			t.Errorf("%v after %s", err, time.Since(start))
		}
		close(release)
		synctest.Wait()
		if err := h.Retry(); err != nil {
			t.Error(err)
		}
		for _, node := range []string{"node", "late"} {
			if fit := h.Fits(h.Node(node), pod(0)); !fit.OK {
				t.Errorf("%s: %+v", node, fit)
			}
		}
		faults.expect(t, "dongle PodFitsDevice timeout", "dongle PodFitsDevice hanging", "dongle AddNode hanging")
	})
}
