package soplugins

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubeslot/kubeslot/plugins/load"
	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/device"
)

// labeler is a plugin that reads and writes labels of the Node, and knows what is lost.
type labeler struct {
	fake
	labels func(node map[string]string) (map[string]string, error)
	lost   func(held []types.ResourceName) map[types.ResourceName]string
}

func (l *labeler) NodeLabels(node map[string]string) (map[string]string, error) {
	defer l.enter(methodNodeLabels)()
	if do := get(&l.fake, &l.labels); do != nil {
		return do(node)
	}
	return nil, nil
}

func (l *labeler) Lost(held []types.ResourceName) map[types.ResourceName]string {
	defer l.enter(methodLost)()
	if do := get(&l.fake, &l.lost); do != nil {
		return do(held)
	}
	return nil
}

func labelers(all ...*labeler) (list []load.Plugin[device.Device]) {
	for _, l := range all {
		list = append(list, load.Plugin[device.Device]{Name: l.name, File: "/plugins/" + l.name + ".so", Value: l})
	}
	return list
}

func wants(labels map[string]string) func(map[string]string) (map[string]string, error) {
	return func(map[string]string) (map[string]string, error) { return labels, nil }
}

// nodeWith is a Config.Labels.
func nodeWith(labels map[string]string) func(context.Context) (map[string]string, bool) {
	return func(context.Context) (map[string]string, bool) { return labels, true }
}

func (w *world) wantLabels(t *testing.T, want string) {
	t.Helper()
	labels, settled := w.NodeLabels()
	if got := fmt.Sprint(labels, settled); got != want {
		t.Errorf("labels %s, want %s", got, want)
	}
}

// A plugin gets the Node's labels before it is asked what the node has, and says which it wants there.
func TestNodeLabels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := map[string]string{"nvidia.com/device-plugin.config": "a100"}
		a := &labeler{fake: fake{name: "a"}, labels: func(node map[string]string) (map[string]string, error) {
			own := map[string]string{"gpu.kubeslot.io/config": node["nvidia.com/device-plugin.config"]}
			node["x"] = "its own copy"
			return own, nil
		}}
		b := &labeler{fake: fake{name: "b"}, labels: wants(map[string]string{"gpu.kubeslot.io/b": "1"})}
		w := start(t, Config{Loaded: append(labelers(a, b), loaded(&fake{name: "c"})...), Labels: nodeWith(node)})
		w.wantLabels(t, "map[gpu.kubeslot.io/b:1 gpu.kubeslot.io/config:a100] true")
		want := []string{methodNew, methodStart, methodNodeLabels, methodUpdateNodeInfo}
		if calls := get(&a.fake, &a.calls); !slices.Equal(calls, want) {
			t.Errorf("calls %v, want %v", calls, want)
		}
		if len(node) != 1 {
			t.Errorf("the plugin changed the Node's labels: %v", node)
		}
		set(&b.fake, &b.labels, wants(nil))
		time.Sleep(time.Minute)
		synctest.Wait()
		w.wantLabels(t, "map[gpu.kubeslot.io/config:a100] true")
		if w.Failing() != nil || w.event() != "" {
			t.Error(w.Failing())
		}
	})
}

// What a plugin does wrong with labels is contained: they stay as they were, everybody can see it, and
// what the node has is known all the same.
func TestWrongLabels(t *testing.T) {
	for name, tc := range map[string]struct {
		labels func(map[string]string) (map[string]string, error)
		want   string
	}{
		"an error": {func(map[string]string) (map[string]string, error) { return nil, errors.New("no such config") },
			"no such config"},
		"a panic": {func(map[string]string) (map[string]string, error) { panic("lost") }, "panic: lost"},
		"others' label": {wants(map[string]string{"example.com/x": "1"}),
			`invalid result: it wants the label example.com/x="1"`},
		"too many": {wants(of("nvidia.com/a%d", 33)), "it wants 33 labels on the Node, of 32 that there may be"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &labeler{fake: fake{name: "a", update: says("x")}}
				a.labels = wants(map[string]string{"nvidia.com/good": "1"})
				b := &labeler{fake: fake{name: "b"}, labels: wants(of("nvidia.com/b%d", 3))}
				w := start(t, Config{Loaded: labelers(a, b), Labels: nodeWith(nil)})
				const good = "map[nvidia.com/b0:1 nvidia.com/b1:1 nvidia.com/b2:1 nvidia.com/good:1] true"
				w.wantLabels(t, good)
				set(&a.fake, &a.labels, tc.labels)
				set(&a.fake, &a.update, says("x", "y"))
				time.Sleep(time.Minute)
				synctest.Wait()
				w.wantLabels(t, good)
				if e := w.event(); !strings.Contains(e, `"a" failed in NodeLabels: `) || !strings.Contains(e, tc.want) {
					t.Errorf("event %q, want %q", e, tc.want)
				}
				if node, _ := w.node(); node["y"] != 1 {
					t.Errorf("what the node has is not known: %v", node)
				}
			})
		})
	}
}

// All plugins together have no more labels than a Node may, and one label is one plugin's.
func TestLabelsOfSeveralPlugins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &labeler{fake: fake{name: "a"}, labels: wants(of("nvidia.com/l%d", 31))}
		b := &labeler{fake: fake{name: "b"}}
		b.labels = wants(map[string]string{"nvidia.com/l0": "2", "nvidia.com/m": "1", "nvidia.com/n": "1"})
		w := start(t, Config{Loaded: labelers(a, b), Labels: nodeWith(nil)})
		labels, _ := w.NodeLabels()
		_, has := labels["nvidia.com/n"]
		if len(labels) != 32 || labels["nvidia.com/l0"] != "1" || labels["nvidia.com/m"] != "1" || has {
			t.Error(labels)
		}
	})
}

func of(key string, n int) map[string]string {
	labels := map[string]string{}
	for i := range n {
		labels[fmt.Sprintf(key, i)] = "1"
	}
	return labels
}

// While the Node is not known plugins say what it has all the same, after a short wait, and labels
// that are there are kept. Once it is known, they are asked soon.
func TestNodeNotKnownYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		known := make(chan struct{})
		a := &labeler{fake: fake{name: "a", update: says("x")}, labels: wants(map[string]string{"nvidia.com/a": "1"})}
		w := start(t, Config{Loaded: labelers(a), Labels: func(ctx context.Context) (map[string]string, bool) {
			select {
			case <-known:
				return nil, true
			case <-ctx.Done():
				return nil, false
			}
		}})
		time.Sleep(nodeWithin)
		synctest.Wait()
		w.wantLabels(t, "map[] false")
		if node, _ := w.node(); node["x"] != 1 || a.count(methodNodeLabels) != 0 {
			t.Errorf("%v, calls %v", node, a.calls)
		}
		close(known)
		time.Sleep(minRetry)
		synctest.Wait()
		w.wantLabels(t, "map[nvidia.com/a:1] true")
	})
}
