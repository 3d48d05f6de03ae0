package utils

import (
	"bytes"
	"flag"
	"reflect"
	"strings"
	"testing"

	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/types"
)

// TestLog: messages go to klog, at its -v, under the line that logged them.
func TestLog(t *testing.T) {
	var buf bytes.Buffer
	fs := flag.NewFlagSet("", flag.ContinueOnError)
	klog.InitFlags(fs)
	for name, value := range map[string]string{"v": "3", "logtostderr": "false", "stderrthreshold": "FATAL"} {
		if err := fs.Set(name, value); err != nil {
			t.Fatal(err)
		}
	}
	klog.SetOutput(&buf)
	Logf(3, "shown %d", 1)
	Logf(4, "hidden")
	Warningf("warned %d", 2)
	Errorf("failed %d", 3)
	klog.Flush()
	for _, want := range []string{"shown 1", "warned 2", "failed 3", "utils_test.go:"} {
		if !strings.Contains(buf.String(), want) {
			t.Errorf("no %q in %q", want, buf.String())
		}
	}
	if strings.Contains(buf.String(), "hidden") || strings.Contains(buf.String(), "log.go:") {
		t.Errorf("logged %q", buf.String())
	}
	if !Logb(3) || Logb(4) {
		t.Error("Logb is not -v")
	}
}

func TestMaps(t *testing.T) {
	type key string
	if got := SortedStringKeys(map[key]int{"b": 1, "a": 2}); !reflect.DeepEqual(got, []string{"a", "b"}) {
		t.Error(got)
	}
	if got := SortedStringKeys(types.ResourceList(nil)); got == nil || len(got) != 0 {
		t.Error(got)
	}
	m := map[string]map[int]string{}
	AssignMap(m, []any{"a", 1}, "x")
	AssignMap(m, []any{"a", 2}, "y")
	if want := (map[string]map[int]string{"a": {1: "x", 2: "y"}}); !reflect.DeepEqual(m, want) {
		t.Error(m)
	}
	for _, c := range []struct {
		path []any
		want string
	}{{[]any{"a", 2}, "y"}, {[]any{"a", 3}, ""}, {[]any{"b", 1}, ""}} {
		if got := GetMap(m, c.path); got != c.want {
			t.Errorf("%v: %v", c.path, got)
		}
	}
	flat := map[string]float64{}
	AssignMap(flat, []string{"a"}, 1.5)
	if flat["a"] != 1.5 {
		t.Error(flat)
	}
}

func TestCompare(t *testing.T) {
	pod := func() *types.PodInfo {
		p := types.NewPodInfo()
		p.RunningContainers["c"] = *types.NewContainerInfo()
		return p
	}
	if !ComparePod(pod(), pod()) || !CompareNode(types.NewNodeInfo(), types.NewNodeInfo()) {
		t.Error("equal ones differ")
	}
	for name, change := range map[string]func(*types.PodInfo){
		"name":      func(p *types.PodInfo) { p.Name = "x" },
		"container": func(p *types.PodInfo) { p.RunningContainers["c"].DevRequests["x"] = 1 },
		"more":      func(p *types.PodInfo) { p.InitContainers["c"] = *types.NewContainerInfo() },
	} {
		p := pod()
		change(p)
		if ComparePod(p, pod()) || ComparePod(pod(), p) {
			t.Errorf("%s: equal", name)
		}
	}
	n := types.NewNodeInfo()
	n.Scorer["x"] = 1
	if CompareNode(n, types.NewNodeInfo()) {
		t.Error("nodes are equal")
	}
}
