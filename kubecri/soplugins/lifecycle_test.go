package soplugins

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/types"
)

// world is running Plugins in a synctest bubble, with the events that they made.
type world struct {
	*Plugins
	events  *record.FakeRecorder
	changed atomic.Int32
}

func start(t *testing.T, config Config) *world {
	t.Helper()
	w := &world{events: record.NewFakeRecorder(100)}
	config.Node, config.Events = "node-a", w.events
	config.Changed = func() { w.changed.Add(1) }
	var err error
	if w.Plugins, err = New(config); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), klog.Logger{})) // nothing is logged
	ended := make(chan struct{})
	go func() { defer close(ended); w.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	synctest.Wait()
	return w
}

func (w *world) event() string {
	select {
	case e := <-w.events.Events:
		return e
	default:
		return ""
	}
}

func (w *world) node() (map[types.ResourceName]int64, bool) {
	info, settled := w.NodeInfo()
	return info.Allocatable, settled
}

func TestLifecycle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fake{name: "a", update: says("x")}
		w := start(t, Config{Loaded: loaded(a), Interval: time.Minute})
		if !slices.Equal(a.calls, []string{methodNew, methodStart, methodUpdateNodeInfo}) {
			t.Errorf("calls %v", a.calls)
		}
		node, settled := w.node()
		if node["x"] != 1 || !settled || w.changed.Load() == 0 || w.Failing() != nil || w.event() != "" {
			t.Errorf("%v %t %d %v", node, settled, w.changed.Load(), w.Failing())
		}
		set(a, &a.update, says("x", "y"))
		time.Sleep(time.Minute)
		synctest.Wait()
		if node, _ := w.node(); node["y"] != 1 || a.count(methodStart) != 1 {
			t.Errorf("%v, calls %v", node, a.calls)
		}
	})
}

// A Start that fails is tried again, ever more rarely and for ever, and everybody
// can see it; the other plugin goes on. What the node said of the plugin before is
// kept for a while only.
func TestStartFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fake{name: "a", start: broken, update: says("x")}
		b := &fake{name: "b", update: says("y")}
		w := start(t, Config{Loaded: loaded(a, b)})
		node, settled := w.node()
		if len(node) != 1 || node["y"] != 1 || settled {
			t.Errorf("%v, settled %t", node, settled)
		}
		if err := w.Failing(); err == nil || !strings.Contains(err.Error(), `"a" failed in Start: no driver`) {
			t.Error(err)
		}
		if e := w.event(); !strings.Contains(e, "Warning DevicePluginFailed") || !strings.Contains(e, "no driver") || !strings.Contains(e, "/plugins/a.so") {
			t.Errorf("event %q", e)
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		// 1+2+4+8+16+32 s, and then once a minute.
		if n := a.count(methodStart); n < 13 || n > 16 {
			t.Errorf("%d starts", n)
		}
		if a.count(methodNew) != 1 || a.count(methodUpdateNodeInfo) != 0 {
			t.Errorf("calls %v", a.calls)
		}
		if _, settled := w.node(); !settled {
			t.Error("what the node said of a plugin that does not start is kept for ever")
		}
		if e := w.event(); e != "" {
			t.Errorf("the same event again: %q", e)
		}
		changed := w.changed.Load()
		set(a, &a.start, nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		if node, _ := w.node(); node["x"] != 1 || w.Failing() != nil || w.changed.Load() <= changed {
			t.Errorf("%v %v", node, w.Failing())
		}
		if e := w.event(); !strings.Contains(e, "Normal DevicePluginRecovered") {
			t.Errorf("event %q", e)
		}
	})
}

func TestNewFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fake{name: "a", newFunc: func() error { panic("lost") }}
		w := start(t, Config{Loaded: loaded(a)})
		if err := w.Failing(); err == nil || !strings.Contains(err.Error(), "failed in New: panic: lost") {
			t.Error(err)
		}
		set(a, &a.newFunc, nil)
		time.Sleep(time.Second)
		synctest.Wait()
		if !slices.Equal(a.calls, []string{methodNew, methodNew, methodStart, methodUpdateNodeInfo}) || w.Failing() != nil {
			t.Errorf("calls %v, %v", a.calls, w.Failing())
		}
	})
}

// A plugin that cannot say what the node has any more has what it said last.
func TestUpdateFails(t *testing.T) {
	for name, broken := range map[string]func(*types.NodeInfo) error{
		"error":    func(*types.NodeInfo) error { return errors.New("bus error") },
		"panic":    func(*types.NodeInfo) error { panic("bus error") },
		"half":     func(info *types.NodeInfo) error { info.Allocatable["z"] = 3; return errors.New("bus error") },
		"negative": func(info *types.NodeInfo) error { info.Capacity["z"] = -1; return nil },
		"slots":    func(info *types.NodeInfo) error { info.KubeCap["akri.sh/cam"] = 1; return nil },
		"cpu":      func(info *types.NodeInfo) error { info.KubeAlloc["cpu"] = 64; return nil },
		"native":   func(info *types.NodeInfo) error { info.KubeCap["foo.kubernetes.io/x"] = 1; return nil },
		"quota":    func(info *types.NodeInfo) error { info.KubeCap["requests.example.com/x"] = 1; return nil },
		"no name":  func(info *types.NodeInfo) error { info.Allocatable[""] = 1; return nil },
		"utf-8":    func(info *types.NodeInfo) error { info.Allocatable["\xff"] = 1; return nil },
		"too much": func(info *types.NodeInfo) error {
			info.Allocatable[types.ResourceName(strings.Repeat("x", 64<<10+1))] = 1
			return nil
		},
		"nil maps": func(info *types.NodeInfo) error { *info = types.NodeInfo{}; info.Capacity["x"] = 1; return nil },
		"b's":      says("y"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &fake{name: "0b", update: says("y")}
				a := &fake{name: "a", update: says("x")}
				w := start(t, Config{Loaded: loaded(b, a)})
				set(a, &a.update, broken)
				time.Sleep(DefaultInterval)
				synctest.Wait()
				node, settled := w.node()
				if len(node) != 2 || node["x"] != 1 || !settled || w.Failing() == nil {
					t.Errorf("%v %t %v", node, settled, w.Failing())
				}
				set(a, &a.update, says("x2"))
				time.Sleep(DefaultInterval)
				synctest.Wait()
				if node, _ := w.node(); node["x2"] != 1 || node["x"] != 0 || w.Failing() != nil {
					t.Errorf("%v %v", node, w.Failing())
				}
			})
		})
	}
}

// What a plugin does with its maps later is its own affair.
func TestUpdateIsCopied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var kept *types.NodeInfo
		a := &fake{name: "a", update: func(info *types.NodeInfo) error {
			kept = info
			info.Used["x"], info.Capacity["x"] = 7, 1 // what is used is not the node's to say
			return nil
		}}
		w := start(t, Config{Loaded: loaded(a)})
		kept.Capacity["y"] = 1
		info, _ := w.NodeInfo()
		info.Capacity["z"] = 1
		if again, _ := w.NodeInfo(); len(again.Capacity) != 1 || len(again.Used) != 0 {
			t.Errorf("%+v", again)
		}
	})
}

// A plugin that hangs is not called again until it returns; calls never overlap.
func TestHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		a := &fake{name: "a", start: func() error { <-release; return nil }, update: says("x")}
		b := &fake{name: "b", update: says("y")}
		w := start(t, Config{Loaded: loaded(a, b), Timeout: time.Second})
		if node, _ := w.node(); node["y"] != 1 {
			t.Errorf("b waits for a: %v", node)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if a.count(methodStart) != 1 {
			t.Errorf("calls %v", a.calls)
		}
		if err := w.Failing(); err == nil || !strings.Contains(err.Error(), "Start has not returned for 1h") {
			t.Error(err)
		}
		close(release)
		time.Sleep(maxRetry)
		synctest.Wait()
		if node, _ := w.node(); node["x"] != 1 || a.overlapped || w.Failing() != nil {
			t.Errorf("%v, calls %v, %v", node, a.calls, w.Failing())
		}
	})
}
