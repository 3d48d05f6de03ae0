package agent

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Where a handler has to run, the selected nodes discover, each for itself, as their labels and the
// selector are now.
func TestHandlerNodeSelector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := configuration("cam")
		c.Spec.HandlerNodeSelector = map[string]string{"net": "shop"}
		s := &shop{api: newAPI(c), c: c, nodes: map[string]*running{}, handlers: map[string]*echoes{}}
		for name, net := range map[string]string{"n1": "shop", "n2": "shop", "node-x": "other"} {
			n := node(name)
			n.Labels = map[string]string{"net": net}
			if err := s.kube.Tracker().Add(n); err != nil {
				t.Fatal(err)
			}
			s.handlers[name] = seeing("foo0")
			s.nodes[name] = s.start(t, name, s.handlers[name])
		}
		expect := func(when string, want ...string) {
			t.Helper()
			pass(10 * time.Second)
			var report []string
			for _, slice := range s.slices(t) {
				if len(slice.Spec.Devices) > 0 {
					report = append(report, slice.Spec.NodeName)
				}
			}
			slices.Sort(report)
			if got := s.discover(); !slices.Equal(got, want) || !slices.Equal(report, want) {
				t.Errorf("%s %q discover and %q report, want %q", when, got, report, want)
			}
		}
		expect("at first", "n1", "n2")
		if _, err := s.kube.CoreV1().Nodes().Update(t.Context(), node("n2"), metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		expect("without its label", "n1")
		why := "spec.handlerNodeSelector of Configuration cameras/cam does not select this node"
		_, err := s.nodes["n2"].WaitDevice(t.Context(), "cam-8120fe")
		if err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("a container there is refused with %v, want %q", err, why)
		}
		c = c.DeepCopy()
		c.Spec.HandlerNodeSelector = map[string]string{"net": "other"}
		s.configure(t, c)
		expect("with another selector", "node-x")
		c = c.DeepCopy()
		c.Spec.HandlerNodeSelector = nil
		s.configure(t, c)
		expect("without a selector", "n1", "n2", "node-x")
	})
}
