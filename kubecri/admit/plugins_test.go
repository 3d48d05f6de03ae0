package admit_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/component-base/metrics/testutil"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/kubecri/admit"
	"github.com/kubeslot/kubeslot/kubecri/admit/admittest"
	"github.com/kubeslot/kubeslot/kubecri/inject"
	"github.com/kubeslot/kubeslot/kubecri/soplugins"
	"github.com/kubeslot/kubeslot/plugins/load"
	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/device"
)

// widgets is a device plugin that gives each container the widgets it was assigned.
type widgets struct{ err error }

func (w *widgets) GetName() string { return "widgets" }
func (w *widgets) New() error      { return nil }
func (w *widgets) Start() error    { return nil }

func (w *widgets) UpdateNodeInfo(info *types.NodeInfo) error {
	info.Allocatable["resource/group/w/7"] = 1
	return nil
}

func (w *widgets) Allocate(p *types.PodInfo, c *types.ContainerInfo) ([]device.Mount, []string, map[string]string,
	error) {
	if p.Namespace != admittest.Pod.Namespace || p.UID != admittest.Pod.UID { // which are not in the annotation
		return nil, nil, nil, fmt.Errorf("pod %q in %q", p.UID, p.Namespace)
	}
	for _, from := range c.AllocateFrom {
		if from == "resource/group/w/7" {
			return nil, []string{"/dev/null", "v.com/widget=7"}, map[string]string{"WIDGET": "7"}, w.err
		}
	}
	return nil, nil, nil, nil
}

const (
	widget = `{"nodename":"node-a","runningcontainer":{"main":{"allocatefrom":{"resource/group/w/0":"resource/group/w/7"}}}}`
	other  = `{"nodename":"node-a","runningcontainer":{"main":{"allocatefrom":{"resource/group/x/0":"resource/group/x/7"}}}}`
	both   = `{"nodename":"node-a","runningcontainer":{"main":{"requests":{"akri.sh/cam":1},"allocatefrom":{"akri.sh/cam/0":"cam-a1-0","resource/group/w/0":"resource/group/w/7"}}}}`
)

const injectedOnce = `# HELP kubecri_injections_total [ALPHA] CreateContainer calls that concerned devices, by result: injected, refused, failed (to be retried), rejected (by the runtime), ignored.
# TYPE kubecri_injections_total counter
kubecri_injections_total{result="failed"} 0
kubecri_injections_total{result="ignored"} 0
kubecri_injections_total{result="injected"} 1
kubecri_injections_total{result="refused"} 0
kubecri_injections_total{result="rejected"} 0
`

// What device plugins give goes beside the slots; if they cannot, the container is
// refused and no slot is claimed.
func TestDevicePlugins(t *testing.T) {
	for _, test := range []struct {
		name       string
		assignment string
		none       bool  // no plugins are loaded
		err        error // of Allocate
		code       codes.Code
		says       string
		usage      string // of the slot, while the container is being created
	}{
		{name: "beside a slot", assignment: both, usage: "C:u1:node-a"},
		{name: "alone", assignment: widget},
		{name: "Allocate fails", assignment: both, err: errors.New("widget 7 is on fire"), code: codes.Unavailable, says: "widget 7 is on fire"},
		{name: "nobody has it", assignment: other, code: codes.FailedPrecondition, says: "resource/group/x/7"},
		{name: "no plugins", assignment: widget, none: true, code: codes.FailedPrecondition, says: "none is loaded"},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := admittest.NewWorld(t, nil)
			loaded := []load.Plugin[device.Device]{{Name: "widgets", Value: &widgets{test.err}}}
			if test.none {
				loaded = nil
			}
			plugins, err := soplugins.New(soplugins.Config{Node: admittest.Node, Loaded: loaded})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(quiet(t))
			ended := make(chan struct{})
			go func() { defer close(ended); plugins.Run(ctx) }()
			defer func() { cancel(); <-ended }()
			pods := w.Pods
			if test.assignment != both { // whose spec asks for the slot
				pods = admittest.NoPods()
			}
			a, err := admit.New(admit.Config{Node: admittest.Node, Pods: pods, Claims: w.Claims,
				DeviceTimeout: 10 * time.Second, Plugins: plugins,
				Runtime: w.Runtime, Metrics: w.Metrics,
				Device: func(context.Context, string) (discovery.Device, error) { return discovery.Device{}, nil }})
			if err != nil {
				t.Fatal(err)
			}
			admission, err := a.Admit(ctx, container(test.assignment))
			if status.Code(err) != test.code || test.says != "" && !strings.Contains(err.Error(), test.says) {
				t.Fatalf("%v, want code %s and %q", err, test.code, test.says)
			}
			w.WantUsage(t, test.usage)
			if err != nil {
				return
			}
			add := admission.Additions
			if v := add.Env[len(add.Env)-1]; v.Name != "WIDGET" || v.Value != "7" || len(add.Devices) != 1 || len(add.CDI) != 1 {
				t.Errorf("%+v", add)
			}
			admission.Created(ctx, "id")
			if err := testutil.GatherAndCompare(w.Counts, strings.NewReader(injectedOnce), "kubecri_injections_total"); err != nil {
				t.Error(err)
			}
			w.WantUsage(t, test.usage)
		})
	}
}

// gpus is a device plugin whose devices the runtime gives to whoever asks for them.
type gpus struct{ widgets }

func (*gpus) OwnVariables() map[string]string { return map[string]string{"GPUS": "void"} }

// A container that was assigned nothing does not get devices by asking the runtime, and
// starts without delay; who may ask is the administrator's to say.
func TestVariablesOfPlugins(t *testing.T) {
	w := admittest.NewWorld(t, nil)
	plugins, err := soplugins.New(soplugins.Config{Node: admittest.Node,
		Loaded: []load.Plugin[device.Device]{{Name: "gpus", Value: &gpus{}}}})
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		namespaces []string
		assignment string
		container  inject.Container
		want       string
	}{
		"its author asks":            {container: inject.Container{Env: []string{"GPUS"}}, want: "GPUS=void"},
		"its image may ask":          {want: "GPUS=void"},
		"neither asks":               {container: inject.Container{ImageEnv: true}},
		"privileged":                 {container: inject.Container{Privileged: true}},
		"its namespace may":          {namespaces: []string{"kube-system", admittest.Pod.Namespace}},
		"every namespace may":        {namespaces: []string{admit.AllNamespaces}},
		"another namespace may":      {namespaces: []string{"kube-system"}, want: "GPUS=void"},
		"it has a slot of something": {assignment: admittest.Good, want: "GPUS=void"},
	} {
		t.Run(name, func(t *testing.T) {
			pods := w.Pods
			if tc.assignment == "" { // whose spec asks for the slot
				pods = admittest.NoPods()
			}
			a, err := admit.New(admit.Config{Node: admittest.Node, Pods: pods, Claims: w.Claims,
				DeviceTimeout: 10 * time.Second, Plugins: plugins,
				Runtime: w.Runtime, VariableNamespaces: tc.namespaces,
				Metrics: w.Metrics, Device: func(context.Context, string) (discovery.Device, error) { return discovery.Device{}, nil }})
			if err != nil {
				t.Fatal(err)
			}
			c := container(tc.assignment)
			if c.Requested = tc.container; tc.assignment == "" {
				c.PodAnnotations = nil
			}
			admission, err := a.Admit(quiet(t), c)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, v := range admission.Additions.Env {
				if v.Name == "GPUS" {
					got = v.Name + "=" + v.Value
				}
			}
			if got != tc.want {
				t.Errorf("it gets %q, want %q", got, tc.want)
			}
			admission.Failed(errors.New("not created"))
		})
	}
}
