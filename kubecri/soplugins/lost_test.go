package soplugins

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/plugin/v1alpha1"
)

func holder(pod, container string, from ...string) *v1alpha1.Holder {
	h := &v1alpha1.Holder{Namespace: "ns", Pod: pod, Uid: "uid-" + pod, Container: container,
		AllocateFrom: map[string]string{}}
	for _, name := range from {
		h.AllocateFrom["want/"+name] = name
	}
	return h
}

// losing says that these are lost of what is held.
func losing(reason string, names ...types.ResourceName) func([]types.ResourceName) map[types.ResourceName]string {
	return func(held []types.ResourceName) map[types.ResourceName]string {
		lost := map[types.ResourceName]string{}
		for _, name := range names {
			if slices.Contains(held, name) {
				lost[name] = reason
			}
		}
		return lost
	}
}

// A pod whose device is lost has one Event for each loss: not one for each of the device's resources
// or containers, nor again while it is lost.
func TestLostDevices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		holders := []*v1alpha1.Holder{holder("p", "init", "gpu/0/cards"),
			holder("p", "main", "gpu/0/cards", "gpu/0/memory"), holder("q", "main", "gpu/1/cards")}
		a := &labeler{fake: fake{name: "a"}}
		w := start(t, Config{Loaded: labelers(a), Holders: func() ([]*v1alpha1.Holder, bool) { return holders, true }})
		want := []string{methodNew, methodStart, methodUpdateNodeInfo, methodLost}
		if calls := get(&a.fake, &a.calls); !slices.Equal(calls, want) {
			t.Errorf("calls %v, want %v", calls, want)
		}
		later := func(lost func([]types.ResourceName) map[types.ResourceName]string, want ...string) {
			t.Helper()
			set(&a.fake, &a.lost, lost)
			time.Sleep(time.Minute)
			synctest.Wait()
			for _, want := range append(want, "") {
				if e := w.event(); (e == "") != (want == "") || !strings.Contains(e, want) {
					t.Errorf("event %q, want %q", e, want)
				}
			}
		}
		const event = `Warning DeviceLost device plugin "a" reports a device of this pod as lost: `
		later(losing("GPU 0 fell off the bus", "gpu/0/cards", "gpu/0/memory"), event+"GPU 0 fell off the bus")
		later(losing("GPU 0 fell off the bus", "gpu/0/cards", "gpu/0/memory"))
		later(losing("GPU 0 fell off the bus", "gpu/0/cards", "gpu/1/cards"), event+"GPU 0 fell") // of q
		later(losing("", "gpu/9/cards"))                                                          // all are back
		later(losing("lost again", "gpu/0/cards"), event+"lost again")
		holders = append(holders[2:], holder("r", "main", "gpu/0/cards"))
		later(losing("lost again", "gpu/0/cards"), event+"lost again") // of r
		if w.Failing() != nil {
			t.Error(w.Failing())
		}
	})
}

// What a plugin says wrongly of losses is contained, and is no Event of a pod.
func TestWrongLosses(t *testing.T) {
	always := func(name types.ResourceName, reason string) func([]types.ResourceName) map[types.ResourceName]string {
		return func([]types.ResourceName) map[types.ResourceName]string {
			return map[types.ResourceName]string{name: reason}
		}
	}
	for name, tc := range map[string]struct {
		lost func([]types.ResourceName) map[types.ResourceName]string
		want string
	}{
		"what nobody holds": {always("gpu/9/cards", "it is lost"),
			`it says that "gpu/9/cards" is lost, for a reason of 10 bytes: want what a container holds`},
		"no reason":     {always("gpu/0/cards", ""), "for a reason of 0 bytes"},
		"a long reason": {always("gpu/0/cards", strings.Repeat("x", maxReason+1)), "a reason of 513 bytes"},
		"no text":       {always("gpu/0/cards", "\xff"), "a text of 1 to 512 bytes"},
		"a panic": {func([]types.ResourceName) map[types.ResourceName]string { panic("oops") },
			"panic: oops"},
		"a changed list": {func(held []types.ResourceName) map[types.ResourceName]string {
			held[0] = "gpu/9/cards"
			return map[types.ResourceName]string{"gpu/9/cards": "it is lost"}
		}, "want what a container holds"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &labeler{fake: fake{name: "a", update: says("x")}, lost: tc.lost}
				w := start(t, Config{Loaded: labelers(a), Holders: func() ([]*v1alpha1.Holder, bool) {
					return []*v1alpha1.Holder{holder("p", "main", "gpu/0/cards")}, true
				}})
				const failed = `Warning DevicePluginFailed device plugin "a" failed in Lost: `
				if e := w.event(); !strings.Contains(e, failed) || !strings.Contains(e, tc.want) || w.event() != "" {
					t.Errorf("event %q, want %q", e, tc.want)
				}
				if node, _ := w.node(); node["x"] != 1 {
					t.Errorf("what the node has is not known: %v", node)
				}
			})
		})
	}
}

// A plugin that cannot say what the node has is asked what is lost all the same, and not before the
// node's pods are known.
func TestLostWhileUpdateFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var known atomic.Bool
		a := &labeler{fake: fake{name: "a", update: func(*types.NodeInfo) error { return broken() }},
			lost: losing("the driver is gone", "gpu/0/cards")}
		w := start(t, Config{Loaded: labelers(a), Holders: func() ([]*v1alpha1.Holder, bool) {
			return []*v1alpha1.Holder{holder("p", "main", "gpu/0/cards")}, known.Load()
		}})
		if e := w.event(); !strings.Contains(e, "failed in UpdateNodeInfo") || a.count(methodLost) != 0 {
			t.Errorf("event %q, calls %v", e, get(&a.fake, &a.calls))
		}
		known.Store(true)
		time.Sleep(minRetry)
		synctest.Wait()
		if e := w.event(); !strings.Contains(e, "the driver is gone") {
			t.Errorf("event %q", e)
		}
	})
}
