package configurationresources

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2/ktesting"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/queuesort"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	schedulermetrics "k8s.io/kubernetes/pkg/scheduler/metrics"
	"k8s.io/kubernetes/pkg/scheduler/profile"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/kube-scheduler/config"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// akriAPI serves the Instances and the Configuration cam. Nothing happens to them.
func akriAPI(t *testing.T, instances ...akriv0.Instance) *restclient.Config {
	meta := metav1.ListMeta{ResourceVersion: "1"}
	lists := map[string]any{
		"/apis/akri.sh/v0/instances": akriv0.InstanceList{ListMeta: meta, Items: instances},
		"/apis/akri.sh/v0/configurations": akriv0.ConfigurationList{ListMeta: meta,
			Items: []akriv0.Configuration{{ObjectMeta: metav1.ObjectMeta{Name: "cam", Namespace: "default"}}}},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		query, list := req.URL.Query(), lists[req.URL.Path]
		switch {
		case list == nil:
			http.NotFound(w, req)
		case query.Get("sendInitialEvents") != "":
			http.Error(w, "lists come by themselves", http.StatusBadRequest)
		case query.Get("watch") != "":
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
			<-req.Context().Done()
		default:
			w.Header().Set("Content-Type", "application/json")
			if err := json.NewEncoder(w).Encode(list); err != nil {
				t.Error(err)
			}
		}
	}))
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	return &restclient.Config{Host: server.URL}
}

// Two profiles of one scheduler, made as upstream makes them, have one ledger: of two
// pods, one of each, that want the only slot, one gets it.
func TestProfilesShareTheLedger(t *testing.T) {
	schedulermetrics.Register()
	_, ctx := ktesting.NewTestContext(t)
	kubeConfig, client := akriAPI(t, *instance("cam-1", "")), fake.NewClientset()
	ctx, cancel := context.WithCancel(ctx)
	t.Cleanup(cancel) // before the API ends

	var plugins []*Plugin
	factory := NewFactory()
	registry := frameworkruntime.Registry{
		queuesort.Name: queuesort.New,
		Name: func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
			made, err := factory(ctx, args, handle)
			if err == nil {
				plugins = append(plugins, made.(*Plugin))
			}
			return made, err
		},
	}
	on := func(name string) schedulerconfig.PluginSet {
		return schedulerconfig.PluginSet{Enabled: []schedulerconfig.Plugin{{Name: name}}}
	}
	var profiles []schedulerconfig.KubeSchedulerProfile
	for _, name := range []string{"one", "two"} {
		profiles = append(profiles, schedulerconfig.KubeSchedulerProfile{SchedulerName: name,
			Plugins:      &schedulerconfig.Plugins{QueueSort: on(queuesort.Name), MultiPoint: on(Name)},
			PluginConfig: []schedulerconfig.PluginConfig{{Name: Name, Args: &config.ConfigurationResourcesArgs{}}}})
	}
	informers := scheduler.NewInformerFactory(client, 0)
	informers.Core().V1().Nodes().Informer() // as the scheduler asks for
	if _, err := profile.NewMap(ctx, profiles, registry, func(string) events.EventRecorderLogger { return noEvents{} },
		frameworkruntime.WithKubeConfig(kubeConfig), frameworkruntime.WithClientSet(client),
		frameworkruntime.WithInformerFactory(informers), frameworkruntime.WithPodActivator(&rig{})); err != nil {
		t.Fatal(err)
	}
	informers.Start(ctx.Done())

	var refusals []string
	for _, p := range plugins {
		asking, state := pod("of-"+p.handle.ProfileName(), "1"), framework.NewCycleState()
		asking.Spec.SchedulerName = p.handle.ProfileName()
		// The first of them waits until the ledger is in step.
		if _, status := p.PreFilter(ctx, state, asking, []fwk.NodeInfo{nodeInfo("node-a")}); !status.IsSuccess() {
			t.Fatal(status)
		}
		status := p.Filter(ctx, state, asking, nodeInfo("node-a"))
		if status.IsSuccess() {
			status = p.Reserve(ctx, state, asking, "node-a")
		}
		if !status.IsSuccess() {
			refusals = append(refusals, asking.Name+": "+status.Message())
		}
	}
	if len(plugins) != 2 || len(refusals) != 1 || !strings.HasPrefix(refusals[0], "of-two: ") || !strings.Contains(refusals[0], "0 of 1 slots free") {
		t.Errorf("%d profiles; refused: %q, want the second for want of the slot", len(plugins), refusals)
	}
	for _, name := range []string{"one", "two"} {
		if plugins[0].book.profiles[name] == nil {
			t.Errorf("pods of profile %s are taken for another scheduler's", name)
		}
	}
}

type profileHandle struct{ fakeHandle }

func (profileHandle) ProfileName() string { return "mine" }

// Arguments that make no sense end the scheduler's start, with the profile and the
// field that is wrong.
func TestFactoryRefusesArguments(t *testing.T) {
	zero, much := int32(0), int32(101)
	for name, test := range map[string]struct {
		args runtime.Object
		want []string
	}{
		"none":              {nil, []string{Name, "ConfigurationResourcesArgs", "<nil>"}},
		"another plugin's":  {&schedulerconfig.NodeResourcesFitArgs{}, []string{Name, "ConfigurationResourcesArgs", "NodeResourcesFitArgs"}},
		"strategy":          {&config.ConfigurationResourcesArgs{Strategy: "Random"}, []string{"mine", "strategy", "Random", string(ledger.Pack)}},
		"claimMode":         {&config.ConfigurationResourcesArgs{ClaimMode: "Both"}, []string{"mine", "claimMode", "Both", "Scheduler"}},
		"nominationTimeout": {&config.ConfigurationResourcesArgs{NominationTimeout: metav1.Duration{Duration: 1}}, []string{"mine", "nominationTimeout", "1ns", "at least 1s"}},
		"no time at all":    {&config.ConfigurationResourcesArgs{NominationTimeout: metav1.Duration{Duration: -1}}, []string{"mine", "nominationTimeout", "-1ns"}},
		"a weight":          {&config.ConfigurationResourcesArgs{NodeScore: config.NodeScore{FreeSlots: &much}}, []string{"mine", "nodeScore.freeSlots", "101", "0 to 100"}},
		"no weights":        {&config.ConfigurationResourcesArgs{NodeScore: config.NodeScore{FreeSlots: &zero, LocalDevices: &zero}}, []string{"mine", "nodeScore", "must not be 0"}},
	} {
		t.Run(name, func(t *testing.T) {
			plugin, err := NewFactory()(context.Background(), test.args, profileHandle{})
			if err == nil {
				t.Fatalf("made %v", plugin)
			}
			for _, part := range test.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q lacks %q", err, part)
				}
			}
		})
	}
}
