package soplugins

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubeslot/kubeslot/kubecri/inject"
	"github.com/kubeslot/kubeslot/plugins/remote"
	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/device"
)

var errGone = fmt.Errorf(`plugin "x" %w since noon: start it`, remote.ErrAway)

// wantError wants an error with the text, or none.
func wantError(t *testing.T, err error, text string) {
	t.Helper()
	if (err != nil) != (text != "") || err != nil && !strings.Contains(err.Error(), text) {
		t.Errorf("error %v, want %q", err, text)
	}
}

// Plugins of .so files come first, then those that are processes, by name, whenever they come.
func TestOrderOfPlugins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := &fake{name: "z", update: says("x", "z"), allocate: gives("Z", "1")}
		w := start(t, Config{Loaded: loaded(z)})
		for _, name := range []string{"c", "a", "b"} {
			r := &fakeRemote{fake: fake{name: name, update: says(types.ResourceName(name)), allocate: gives(name, "1")}}
			w.add(r)
			synctest.Wait()
		}
		edits, err := w.Allocate(t.Context(), assigned("a", "b", "c", "z"), "main")
		var names []string
		for _, e := range edits {
			names = append(names, e.Env[0].Name)
		}
		if got := strings.Join(names, " "); err != nil || got != "Z a b c" {
			t.Error(got, err)
		}
		thief := &fakeRemote{fake: fake{name: "0", update: says("x")}}
		w.add(thief)
		synctest.Wait()
		wantError(t, w.Failing(), `"0" failed in UpdateNodeInfo: invalid result: it names "x", as device plugin "z" does`)
	})
}

// A plugin that is a process is asked when it has something new to say, keeps what it said while
// it is away, and the node's events say that it went and came.
func TestRemoteComesAndGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, Config{})
		a := &fakeRemote{fake: fake{name: "a", update: says("x"), allocate: gives("A", "1")}}
		wake := w.add(a)
		synctest.Wait()
		if node, _ := w.node(); node["x"] != 1 || w.Failing() != nil {
			t.Fatal(node, w.Failing())
		}
		if _, err := w.Allocate(t.Context(), assigned("x"), "main"); err != nil || a.asked != "p/main" {
			t.Error(a.asked, err)
		}
		change := func(away error, update func(*types.NodeInfo) error) {
			set(&a.fake, &a.away, away)
			set(&a.fake, &a.update, update)
			wake()
			synctest.Wait()
		}
		changed := w.changed.Load()
		change(nil, says("x", "y"))
		if node, _ := w.node(); node["y"] != 1 || w.changed.Load() == changed {
			t.Errorf("not asked at once: %v", node)
		}
		change(errGone, says())
		if node, settled := w.node(); node["x"] != 1 || !settled {
			t.Errorf("away, and the node has %v", node)
		}
		if e := w.event(); !strings.Contains(e, `Warning DevicePluginFailed device plugin "a" failed in`) ||
			!strings.Contains(e, `plugin "x" is away since noon`) {
			t.Errorf("event %q", e)
		}
		wantError(t, w.Failing(), `plugin "x" is away since noon`)
		_, err := w.Allocate(t.Context(), assigned("x"), "main")
		wantError(t, err, `device plugin "a" cannot be asked now: plugin "x" is away`)
		change(fmt.Errorf("%w for another second", errGone), says())
		if e := w.event(); e != "" {
			t.Errorf("the same event again: %q", e)
		}
		change(nil, says("x"))
		if node, _ := w.node(); node["x"] != 1 || node["y"] != 0 || w.Failing() != nil {
			t.Errorf("back with fewer devices: %v, %v", node, w.Failing())
		}
		if e := w.event(); !strings.Contains(e, "Normal DevicePluginRecovered") {
			t.Errorf("event %q", e)
		}
	})
}

// Who waits for a plugin that is away: all that may need it, or, if it is not required, only those
// that were assigned what it said the node has, or what nobody names before it has said anything.
func TestPolicyOfRemote(t *testing.T) {
	asked := `"r" cannot be asked now: plugin "x" is away`
	for name, test := range map[string]struct {
		ignore, said bool // it was there before
		from         []types.ResourceName
		refused      string
	}{
		"required, another's container":          {from: []types.ResourceName{"so"}},
		"required, may have a part":              {from: []types.ResourceName{"own words"}, refused: asked},
		"required, may have a part of another's": {from: []types.ResourceName{"so", "own words"}, refused: asked},
		"required, has a part":                   {said: true, from: []types.ResourceName{"r"}, refused: asked},
		"ignored, another's container":           {ignore: true, from: []types.ResourceName{"so"}},
		"ignored, may have a part": {ignore: true, from: []types.ResourceName{"own words"},
			refused: asked},
		"ignored, has a part": {ignore: true, said: true, from: []types.ResourceName{"r"},
			refused: asked},
		"ignored, has a part of another's": {ignore: true, said: true, from: []types.ResourceName{"so", "r"},
			refused: asked},
		"ignored, was there, and might have had more": {ignore: true, said: true,
			from: []types.ResourceName{"own words"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				so := &fake{name: "so", update: says("so"), allocate: gives("SO", "1")}
				words := &fake{name: "words", allocate: gives("WORDS", "1")}
				r := &fakeRemote{ignore: test.ignore,
					fake: fake{name: "r", update: says("r"), allocate: gives("R", "1")}}
				if !test.said {
					r.away = errGone
				}
				w := start(t, Config{Loaded: loaded(so, words)})
				w.add(r)
				w.Tried(t.Context())
				synctest.Wait()
				set(&r.fake, &r.away, errGone)
				_, err := w.Allocate(t.Context(), assigned(test.from...), "main")
				wantError(t, err, test.refused)
				if err := w.Failing(); (err == nil) != test.ignore {
					t.Error(err)
				}
			})
		})
	}
}

// Containers that start together do not wait for each other's answer of a plugin that is a process.
func TestCallsOfRemoteOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := func(pod *types.PodInfo, c *types.ContainerInfo) ([]device.Mount, []string, map[string]string, error) {
			time.Sleep(time.Second)
			return gives("A", "1")(pod, c)
		}
		w := start(t, Config{})
		w.add(&fakeRemote{fake: fake{name: "a", update: says("x"), allocate: slow}})
		synctest.Wait()
		begin := time.Now()
		var together sync.WaitGroup
		for range 20 {
			together.Go(func() {
				if _, err := w.Allocate(t.Context(), assigned("x"), "main"); err != nil {
					t.Error(err)
				}
			})
		}
		together.Wait()
		if took := time.Since(begin); took != time.Second {
			t.Errorf("20 containers took %s", took)
		}
	})
}

// The failure of a plugin that is not required is that of its own containers alone.
func TestIgnoredPluginFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		so := &fake{name: "so", update: says("so"), allocate: gives("SO", "1")}
		r := &fakeRemote{ignore: true, fake: fake{name: "r", update: says("r"), allocate: failing}}
		w := start(t, Config{Loaded: loaded(so)})
		w.add(r)
		synctest.Wait()
		_, err := w.Allocate(t.Context(), assigned("so"), "main")
		wantError(t, err, "")
		_, err = w.Allocate(t.Context(), assigned("r"), "main")
		wantError(t, err, `"r" failed in Allocate`)
		// It may have had what nobody names, whatever others give.
		_, err = w.Allocate(t.Context(), assigned("so", "taken out"), "main")
		wantError(t, err, `"r" failed in Allocate`)
		set(&r.fake, &r.away, errGone)
		set(&r.fake, &so.allocate, nil)
		_, err = w.Allocate(t.Context(), assigned("other"), "main")
		wantError(t, err, `; not here now: plugin "x" is away`) // which may be why nobody answers
	})
}

// A container that comes right after kubecri's start waits, as long as its caller allows, for the
// plugins that are there and for required ones that are not; then it does not pass them.
func TestContainerRightAfterStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looked := make(chan struct{})
		w := start(t, Config{known: func(ctx context.Context) {
			select {
			case <-looked:
			case <-ctx.Done():
			}
		}})
		named := &fakeRemote{fake: fake{name: "named", update: says("n"), allocate: gives("N", "1")}, away: errGone}
		wake := w.add(named)
		w.add(&fakeRemote{ignore: true, fake: fake{name: "ignored"}, away: errGone})
		begin := time.Now()
		time.AfterFunc(2*time.Second, func() {
			seen := &fakeRemote{fake: fake{name: "seen", update: says("s"), allocate: gives("S", "1")}}
			w.add(seen)
			close(looked)
		})
		time.AfterFunc(time.Second, func() { set(&named.fake, &named.away, nil); wake() })
		w.Tried(t.Context())
		if took := time.Since(begin); took != 2*time.Second {
			t.Errorf("waited for %s", took)
		}
		if edits, err := w.Allocate(t.Context(), assigned("n", "s"), "main"); err != nil || len(edits) != 2 {
			t.Error(edits, err)
		}
		missing := &fakeRemote{fake: fake{name: "absent"}, away: errGone}
		w.add(missing)
		begin = time.Now()
		w.Tried(t.Context())
		if took := time.Since(begin); took != comesWithin {
			t.Errorf("waited for %s for one that does not come", took)
		}
		_, err := w.Allocate(t.Context(), assigned("n", "unknown"), "main")
		wantError(t, err, `"absent" cannot be asked now: plugin "x" is away`)
	})
}

// What the node said of plugins before this process is kept until they had the time to come.
func TestNodeKeepsWhatMayCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, Config{known: func(context.Context) {}})
		if _, settled := w.node(); settled {
			t.Error("what the node said is dropped before any plugin could come")
		}
		changed := w.changed.Load()
		time.Sleep(settle)
		synctest.Wait()
		if _, settled := w.node(); !settled || w.changed.Load() == changed {
			t.Error("what the node said is kept for ever")
		}
	})
}

// The variables of a plugin that is a process are known once it came, and stay while it is away.
func TestRemotesOwnVariables(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, Config{})
		r := &fakeRemote{fake: fake{name: "r"}, away: errGone, own: map[string]string{"R": "void"}}
		wake := w.add(r)
		withheld := func() string {
			synctest.Wait()
			for _, e := range w.Withhold(inject.Container{}, nil) {
				return variable(e, "R")
			}
			return ""
		}
		if got := withheld(); got != "" {
			t.Error(got)
		}
		set(&r.fake, &r.away, nil)
		wake()
		if got := withheld(); got != "void" {
			t.Errorf("%q", got)
		}
		set(&r.fake, &r.away, errGone)
		set(&r.fake, &r.own, nil)
		wake()
		if got := withheld(); got != "void" {
			t.Errorf("away: %q", got)
		}
		set(&r.fake, &r.away, nil)
		set(&r.fake, &r.own, map[string]string{"A=B": "x"})
		wake()
		if got := withheld(); got != "void" {
			t.Errorf("after invalid ones: %q", got)
		}
		wantError(t, w.Failing(), `the variable "A=B"`)
	})
}
