package deviceplugins

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/kubeslot/kubeslot/plugins/remote"
	"github.com/kubeslot/kubeslot/types/devicescheduler"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// gives has kubecri of the node give out the resources for its device plugins.
func gives(node *v1.Node, resources ...string) *v1.Node {
	metav1.SetMetaDataAnnotation(&node.ObjectMeta, v1alpha1.PluginResourcesAnnotation, strings.Join(resources, ","))
	return node
}

// A node on which kubecri would refuse the container is refused: nobody would assign it what it requests.
func TestUnassigned(t *testing.T) {
	const widget, gadget = "example.com/widget", "example.com/gadget"
	inSpec, other := widgets(t, "p", 1), parsePod(t, "p", "", "", "main example.com/gadget=1")
	both := written(t, "p", "", widget, 1)
	both.Spec = other.Spec
	slot, plain := parsePod(t, "p", "", "", "main akri.sh/cam=1"), parsePod(t, "p", "", "", "main cpu=1")
	plugin := []devicescheduler.DeviceScheduler{newMoody()}
	for name, test := range map[string]struct {
		plugins []devicescheduler.DeviceScheduler
		pod     *v1.Pod
		given   []string
		refused string
	}{
		"no plugins":                     {nil, inSpec, []string{gadget, widget}, widget},
		"no plugins, of the kubelet's":   {nil, inSpec, []string{gadget}, ""},
		"a plugin answers":               {plugin, inSpec, []string{widget}, ""},
		"no plugin answers":              {plugin, other, []string{gadget}, gadget},
		"none answers, of the kubelet's": {plugin, other, []string{widget}, ""},
		"the annotation requests others": {plugin, both, []string{gadget, widget}, ""},
		"slots are the scheduler's own":  {nil, slot, []string{"akri.sh/cam"}, ""},
		"none is requested":              {nil, plain, []string{widget}, ""},
		"the name is a part of others":   {nil, inSpec, []string{widget + "s", "x" + widget}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r, state := newRig(t, test.plugins...), framework.NewCycleState()
			node := gives(widgetNode(t, "a", "1x2"), test.given...)
			if len(test.plugins) > 0 {
				r.cache.setNode(node)
			}
			r.create(t, test.pod)
			if _, status := r.PreFilter(r.ctx, state, test.pod, nil); !status.IsSuccess() && !status.IsSkip() {
				t.Fatal(status)
			}
			want := ""
			if test.refused != "" {
				want = fmt.Sprintf(`no device scheduler plugin answers for 1 of %q for container "main": kubecri`,
					test.refused)
			}
			status := r.Filter(r.ctx, state, test.pod, frameworkNode(node))
			if !strings.HasPrefix(status.Message(), want) || status.IsSuccess() != (want == "") ||
				want != "" && status.Code() != fwk.UnschedulableAndUnresolvable {
				t.Errorf("%v, want %q", status, want)
			}
			if len(test.plugins) == 0 {
				return
			}
			r.requeued()
			if r.cache.retryFaulted(); (len(r.requeued()) > 0) != (test.refused != "") {
				t.Error("pods are not tried again when a plugin comes, or for nothing")
			}
		})
	}
}

// A pod whose annotation requests what no plugin answers for is tried again when another plugin comes.
func TestAwaitsItsPlugin(t *testing.T) {
	r, state := newRig(t, newMoody()), framework.NewCycleState()
	node := r.addNode(t, "a", "1x2")
	p := written(t, "p", "", "example.com/gadget", 1)
	r.create(t, p)
	r.PreFilter(r.ctx, state, p, nil)
	status := r.Filter(r.ctx, state, p, frameworkNode(node))
	if !strings.HasPrefix(status.Message(), "no device scheduler plugin answers for") {
		t.Fatal(status)
	}
	r.requeued()
	r.cache.retryFaulted()
	if tried := r.requeued(); !slices.Equal(tried, []string{"p"}) {
		t.Errorf("tried again are %v, want p", tried)
	}
}

// Pods wait for a plugin that has not been there since the scheduler began: also one that is ignored, or
// that nobody has named.
func TestNobodyAssignsYet(t *testing.T) {
	for name, policies := range map[string]map[string]string{"ignored": {"widget": remote.Ignore}, "not named": nil} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			node := gives(widgetNode(t, "a", "1x2"), "example.com/widget")
			if _, err := c.client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			o := &Options{Folder: t.TempDir(), Options: remote.Options{
				Sockets: socketFolder(t), Timeout: 20 * time.Second, Policies: policies}}
			c.scheduleWith(o)
			c.create(widgets(t, "early", 1))
			c.awaitRefused("early", `for container "main": kubecri gives it only to containers that such a plugin assigned it to`)
			stop := serve(t, o.Sockets)
			c.awaitBound("early")
			c.haveTheirOwn(1, "early")
			stop()
		})
	}
}

// While there are no plugins, another node has the pods tried that were refused.
func TestHintOfNodes(t *testing.T) {
	for _, schedulers := range [][]devicescheduler.DeviceScheduler{nil, {newMoody()}} {
		r, tries := newRig(t, schedulers...), []fwk.QueueingHint{}
		registered, err := r.EventsToRegister(r.ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range registered {
			if e.Event.Resource == fwk.Node && e.Event.ActionType&fwk.Add != 0 {
				tainted := &v1.Node{Spec: v1.NodeSpec{Unschedulable: true}}
				for _, before := range []any{nil, &v1.Node{}} {
					hint, err := e.QueueingHintFn(r.cache.logger, widgets(t, "p", 1), before, tainted)
					if err != nil {
						t.Error(err)
					}
					tries = append(tries, hint)
				}
			}
		}
		want := []fwk.QueueingHint{fwk.Queue, fwk.QueueSkip}
		if len(schedulers) > 0 {
			want[0] = fwk.QueueSkip // the device cache does
		}
		if !slices.Equal(tries, want) {
			t.Errorf("with %d plugins, a new node and one with a taint: %v, want %v", len(schedulers), tries, want)
		}
	}
}
