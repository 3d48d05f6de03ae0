package soplugins

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/kubecri/inject"
	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/contain"
	"github.com/kubeslot/kubeslot/types/device"
)

// assigned is a pod whose container "main" was assigned the resources.
func assigned(from ...types.ResourceName) *types.PodInfo {
	c := types.ContainerInfo{AllocateFrom: types.ResourceLocation{}}
	for i, name := range from {
		c.AllocateFrom[types.ResourceName(fmt.Sprintf("want/%d", i))] = name
	}
	return &types.PodInfo{Name: "p", RunningContainers: map[string]types.ContainerInfo{"main": c,
		"spec": {KubeRequests: types.ResourceList{"example.com/widget": 1, "cpu": 1, "akri.sh/cam": 1}, AllocateFrom: types.ResourceLocation{"want": "resource/x"}},
		"asks": {Requests: types.ResourceList{"example.com/widget": 1}},
		"side": {Requests: types.ResourceList{"akri.sh/cam": 1, "unset": 0}, AllocateFrom: types.ResourceLocation{"akri.sh/cam/0": "cam-a1-0"}}},
		InitContainers: map[string]types.ContainerInfo{"init": c}}
}

var broken = func() error { return errors.New("no driver") }

func failing(*types.PodInfo, *types.ContainerInfo) ([]device.Mount, []string, map[string]string, error) {
	return nil, nil, nil, errors.New("on fire")
}

// Who is asked, who has to answer, and what becomes of a container.
func TestAllocate(t *testing.T) {
	fails := func(text string) func(*types.PodInfo, *types.ContainerInfo) ([]device.Mount, []string, map[string]string, error) {
		return func(*types.PodInfo, *types.ContainerInfo) ([]device.Mount, []string, map[string]string, error) {
			return nil, nil, nil, errors.New(text)
		}
	}
	hangs := func(*types.PodInfo, *types.ContainerInfo) ([]device.Mount, []string, map[string]string, error) {
		time.Sleep(time.Hour)
		return nil, nil, nil, nil
	}
	for _, test := range []struct {
		name      string
		plugins   []*fake
		container string // "main"
		from      []types.ResourceName
		answers   string // the plugins that gave something
		err       []string
	}{
		{name: "a container of nothing", container: "side", plugins: []*fake{{name: "a", allocate: gives("A", "1")}}},
		{name: "an ephemeral container", container: "debug", plugins: []*fake{{name: "a", allocate: gives("A", "1")}}},
		{name: "its plugin", from: []types.ResourceName{"x"}, plugins: []*fake{{name: "a", update: says("x"), allocate: gives("A", "1")}, {name: "b"}}, answers: "a"},
		{name: "an init container", container: "init", from: []types.ResourceName{"x"}, plugins: []*fake{{name: "a", update: says("x"), allocate: gives("A", "1")}}, answers: "a"},
		{name: "two plugins, in order", from: []types.ResourceName{"x", "y"}, plugins: []*fake{
			{name: "b", update: says("y"), allocate: gives("B", "1")}, {name: "a", update: says("x"), allocate: gives("A", "1")}}, answers: "b a"},
		{name: "one that asks, and is assigned by a plugin that needs no entries", container: "asks",
			plugins: []*fake{{name: "a", allocate: gives("A", "1")}}, answers: "a"},

		{name: "no plugins", from: []types.ResourceName{"x"}, err: []string{`"x"`, "none is loaded", "--cridevices"}},
		{name: "nobody answers", from: []types.ResourceName{"x"}, plugins: []*fake{{name: "a"}}, err: []string{`"x"`, "no plugin says"}},
		{name: "nobody answers one that asks", container: "asks", plugins: []*fake{{name: "a"}}, err: []string{`"example.com/widget"`, "no device plugin"}},
		{name: "its plugin gives nothing", from: []types.ResourceName{"x"}, plugins: []*fake{{name: "a", update: says("x")}, {name: "b", allocate: gives("B", "1")}},
			err: []string{`"a"`, "gives nothing"}},
		{name: "a part that no plugin has", from: []types.ResourceName{"gone", "x"}, plugins: []*fake{{name: "a", update: says("x"), allocate: gives("A", "1")}},
			err: []string{`"gone"`, "taken out"}},
		{name: "a part in a plugin's own words", from: []types.ResourceName{"own words", "x"}, plugins: []*fake{
			{name: "a", update: says("x"), allocate: gives("A", "1")}, {name: "b", allocate: gives("B", "1")}}, answers: "a b"},

		{name: "its plugin is asked for more, and gives it", container: "spec", plugins: []*fake{{name: "a", update: says("resource/x", "example.com/widget"), allocate: gives("A", "1")}}, answers: "a"},
		{name: "another plugin is asked too, and gives nothing", container: "spec", plugins: []*fake{
			{name: "a", update: says("resource/x"), allocate: gives("A", "1")}, {name: "b", update: says("example.com/widget")}}, err: []string{`"example.com/widget"`, `"b"`, "gives nothing", "--devschedpath"}},

		{name: "a plugin's message", from: []types.ResourceName{"x"}, plugins: []*fake{{name: "a", update: says("x"), allocate: fails("widget 7 is on fire")}},
			err: []string{`"a" failed in Allocate`, "widget 7 is on fire"}},
		{name: "a panic", from: []types.ResourceName{"x"}, plugins: []*fake{{name: "a", update: says("x"),
			allocate: func(p *types.PodInfo, _ *types.ContainerInfo) ([]device.Mount, []string, map[string]string, error) {
				p.InitContainers["none"].Requests["r"] = 1 // a nil map
				return nil, nil, nil, nil
			}}}, err: []string{"panic"}},
		{name: "a hang", from: []types.ResourceName{"x"}, plugins: []*fake{{name: "a", update: says("x"), allocate: hangs}}, err: []string{"did not return in time"}},

		{name: "its plugin is not started", from: []types.ResourceName{"x"}, plugins: []*fake{{name: "a", start: broken, allocate: gives("A", "1")}},
			err: []string{`"a" cannot be asked now`, "no driver"}},
		{name: "another's failure is none of its business", from: []types.ResourceName{"x"}, plugins: []*fake{
			{name: "b", start: broken}, {name: "a", update: says("x"), allocate: gives("A", "1")}}, answers: "a"},
		{name: "one that may have a part is not started", from: []types.ResourceName{"x", "y"}, plugins: []*fake{
			{name: "b", start: broken}, {name: "a", update: says("x"), allocate: gives("A", "1")}}, err: []string{`"b" cannot be asked`}},
		{name: "one that cannot say what the node has, but answers", from: []types.ResourceName{"x"}, plugins: []*fake{
			{name: "a", update: func(*types.NodeInfo) error { return errors.New("bus") }, allocate: gives("A", "1")}}, answers: "a"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := start(t, Config{Loaded: loaded(test.plugins...), Timeout: 10 * time.Second})
				container := test.container
				if container == "" {
					container = "main"
				}
				edits, err := w.Allocate(t.Context(), assigned(test.from...), container)
				if (err != nil) != (len(test.err) > 0) {
					t.Fatal(edits, err)
				}
				for _, part := range test.err {
					if !strings.Contains(err.Error(), part) {
						t.Errorf("error %q lacks %q", err, part)
					}
				}
				if err == nil {
					var names []string
					for _, e := range edits {
						names = append(names, strings.Trim(strings.TrimPrefix(e.Owner, "device plugin "), `"`))
					}
					if got := strings.Join(names, " "); got != test.answers {
						t.Errorf("edits of %q, want %q", got, test.answers)
					}
				}
				time.Sleep(2 * time.Hour) // what hangs ends
			})
		})
	}
}

// Right after a start a container waits for the plugins' first try, and no longer
// than its caller.
func TestAllocateWaitsForStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &fake{name: "a", start: func() error { time.Sleep(3 * time.Second); return nil }, update: says("x"), allocate: gives("A", "1")}
		w := start(t, Config{Loaded: loaded(slow)})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		w.Tried(ctx)
		if _, err := w.Allocate(ctx, assigned("x"), "main"); err == nil || !strings.Contains(err.Error(), "not started yet") {
			t.Error(err)
		}
		w.Tried(t.Context())
		if edits, err := w.Allocate(t.Context(), assigned("x"), "main"); err != nil || len(edits) != 1 {
			t.Error(edits, err)
		}
	})
}

// A plugin in which a call hangs is not called: its containers are refused at
// once, those of others start.
func TestAllocateBesideAHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := &fake{name: "a", update: says("x"), allocate: func(*types.PodInfo, *types.ContainerInfo) ([]device.Mount, []string, map[string]string, error) {
			time.Sleep(time.Hour)
			return nil, nil, nil, nil
		}}
		well := &fake{name: "b", update: says("y"), allocate: gives("B", "1")}
		w := start(t, Config{Loaded: loaded(stuck, well), Timeout: 10 * time.Second})
		var waiting sync.WaitGroup
		for range 3 { // the first hangs, the others wait for their turn in vain
			waiting.Go(func() {
				if _, err := w.Allocate(t.Context(), assigned("x"), "main"); err == nil {
					t.Error("no error")
				}
			})
		}
		waiting.Wait()
		begin := time.Now()
		if _, err := w.Allocate(t.Context(), assigned("x"), "main"); err == nil || !strings.Contains(err.Error(), "Allocate has not returned for") {
			t.Error(err)
		}
		if edits, err := w.Allocate(t.Context(), assigned("y"), "main"); err != nil || len(edits) != 1 {
			t.Error(edits, err)
		}
		if took := time.Since(begin); took > 0 || stuck.count(methodAllocate) != 1 {
			t.Errorf("took %s, calls %v", took, stuck.calls)
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if w.Failing() != nil || stuck.overlapped || well.overlapped {
			t.Error(w.Failing(), "calls overlapped:", stuck.overlapped)
		}
	})
}

// Plugins get copies, in which no map is nil.
func TestAllocateGivesCopies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		vandal := func(p *types.PodInfo, c *types.ContainerInfo) ([]device.Mount, []string, map[string]string, error) {
			p.Name, p.Requests["r"] = "other", 1
			p.RunningContainers["main"].AllocateFrom["want/0"] = "other"
			c.KubeRequests["r"], c.Scorer["r"] = 1, 1
			return nil, nil, map[string]string{"SEEN": string(c.AllocateFrom["want/0"])}, nil
		}
		// Both see the pod as it is: c is a copy of p's container whose maps are shared.
		w := start(t, Config{Loaded: loaded(&fake{name: "a", update: says("x"), allocate: vandal}, &fake{name: "b", allocate: func(p *types.PodInfo, c *types.ContainerInfo) ([]device.Mount, []string, map[string]string, error) {
			return nil, nil, map[string]string{"B": p.Name + " " + string(c.AllocateFrom["want/0"])}, nil
		}})})
		pod := assigned("x")
		edits, err := w.Allocate(t.Context(), pod, "main")
		if err != nil || variable(edits[1], "B") != "p x" || pod.Name != "p" || pod.RunningContainers["main"].AllocateFrom["want/0"] != "x" {
			t.Error(edits, err, pod)
		}
	})
}

// variable is the value of one of the edits' variables, "" when they have none.
func variable(e inject.Edits, name string) string {
	for _, v := range e.Env {
		if v.Name == name {
			return v.Value
		}
	}
	return ""
}

func TestEdits(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "null")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Symlink("/dev/null", link)); err != nil {
		t.Fatal(err)
	}
	const long = 128 << 10
	for _, test := range []struct {
		name  string
		given given
		err   string
	}{
		{name: "all", given: given{
			mounts:  []device.Mount{{ContainerPath: "/a", HostPath: dir, Readonly: true}, {ContainerPath: "/b", HostPath: file}},
			devices: []string{"/dev/null", link, "vendor.com/gpu=0"}, env: map[string]string{"A": "1", "b.c-d": ""}}},
		{name: "relative mount", given: given{mounts: []device.Mount{{ContainerPath: "a", HostPath: dir}}}, err: "absolute"},
		{name: "no path", given: given{mounts: []device.Mount{{ContainerPath: "/a"}}}, err: "absolute"},
		{name: "dots", given: given{mounts: []device.Mount{{ContainerPath: "/a", HostPath: dir + "/../x"}}}, err: "clean"},
		{name: "slash", given: given{mounts: []device.Mount{{ContainerPath: "/a/", HostPath: dir}}}, err: "clean"},
		{name: "root", given: given{mounts: []device.Mount{{ContainerPath: "/", HostPath: dir}}}, err: "root"},
		{name: "NUL", given: given{mounts: []device.Mount{{ContainerPath: "/a\x00", HostPath: dir}}}, err: "not a path"},
		{name: "nothing there", given: given{mounts: []device.Mount{{ContainerPath: "/a", HostPath: dir + "/none"}}}, err: "no such file"},
		{name: "no device", given: given{devices: []string{dir + "/none"}}, err: "no such file"},
		{name: "a file", given: given{devices: []string{file}}, err: "not a device node"},
		{name: "a directory", given: given{devices: []string{dir}}, err: "not a device node"},
		{name: "half a CDI name", given: given{devices: []string{"vendor.com/gpu"}}, err: "CDI name"},
		{name: "a CDI class of one letter", given: given{devices: []string{"vendor.com/g=0"}}, err: "CDI name"},
		{name: "empty device", given: given{devices: []string{""}}, err: "absolute"},
		{name: "no variable", given: given{env: map[string]string{"": "1"}}, err: "variable"},
		{name: "=", given: given{env: map[string]string{"A=B": "1"}}, err: "variable"},
		{name: "NUL in a value", given: given{env: map[string]string{"A": "\x00"}}, err: "NUL"},
		{name: "too long", given: given{env: map[string]string{"A": strings.Repeat("x", long)}}, err: "Linux"},
		{name: "ours", given: given{env: map[string]string{"AKRI_DEVICES": "[]"}}, err: "kubecri's own"},
	} {
		t.Run(test.name, func(t *testing.T) {
			e, err := edits("p", test.given)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) || !errors.Is(err, contain.ErrInvalid) {
					t.Errorf("error %v, want %q", err, test.err)
				}
				return
			}
			if err != nil || e.Owner != `device plugin "p"` || len(e.Mounts) != 2 || !e.Mounts[0].ReadOnly ||
				!slices.Equal(e.Devices, []discovery.DeviceSpec{{HostPath: "/dev/null", ContainerPath: "/dev/null"}, {HostPath: link, ContainerPath: link}}) ||
				!slices.Equal(e.CDI, []string{"vendor.com/gpu=0"}) || len(e.Env) != 2 || e.Empty() {
				t.Errorf("%+v, %v", e, err)
			}
		})
	}
}
