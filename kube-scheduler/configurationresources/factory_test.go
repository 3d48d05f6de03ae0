package configurationresources

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
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
	"github.com/kubeslot/kubeslot/kube-scheduler/binding"
	"github.com/kubeslot/kubeslot/kube-scheduler/config"
	"github.com/kubeslot/kubeslot/kube-scheduler/waitreason"
	"github.com/kubeslot/kubeslot/test/await"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// slotAPI serves the slices and the Configuration cam, and no claims. Nothing happens to
// them.
func slotAPI(t *testing.T, slices ...v1alpha1.DeviceSlice) *restclient.Config {
	return serve(t, slotLists(slices...), nil)
}

// slotLists are those that the scheduler reads, by path.
func slotLists(slices ...v1alpha1.DeviceSlice) map[string]any {
	meta := metav1.ListMeta{ResourceVersion: "1"}
	return map[string]any{
		"/apis/akri.sh/v0/configurations":         akriv0.ConfigurationList{ListMeta: meta, Items: []akriv0.Configuration{*cameras(1)}},
		"/apis/kubeslot.io/v1alpha1/deviceslices": v1alpha1.DeviceSliceList{ListMeta: meta, Items: slices},
		"/apis/kubeslot.io/v1alpha1/slotclaims":   v1alpha1.SlotClaimList{ListMeta: meta},
	}
}

// event is what a watch shows.
type event struct {
	Type   string `json:"type"`
	Object any    `json:"object"`
}

// serve is an API server with these lists, by path; what has none is not served. A watch
// shows what comes of its path's channel, if there is one.
func serve(t *testing.T, lists map[string]any, events map[string]chan event) *restclient.Config {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		query, list := req.URL.Query(), lists[req.URL.Path]
		switch {
		case strings.Contains(req.URL.Path, "instances"):
			t.Errorf("the scheduler asks for %s: Instances are a view, which may lag", req.URL)
			http.NotFound(w, req)
		case list == nil:
			http.NotFound(w, req)
		case query.Get("sendInitialEvents") != "":
			http.Error(w, "lists come by themselves", http.StatusBadRequest)
		case query.Get("watch") != "":
			w.WriteHeader(http.StatusOK)
			for {
				w.(http.Flusher).Flush()
				select {
				case e := <-events[req.URL.Path]:
					if err := json.NewEncoder(w).Encode(e); err != nil {
						t.Error(err)
					}
				case <-req.Context().Done():
					return
				}
			}
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
	ctx, plugins := started(t, slotAPI(t, *slice("node-a", "0", reported("cam-000001"))), config.ClaimByNode, config.ClaimByNode)

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
	if len(plugins) != 2 || len(refusals) != 1 || !strings.HasPrefix(refusals[0], "of-profile-1: ") || !strings.Contains(refusals[0], "0 of 1 slots free") {
		t.Errorf("%d profiles; refused: %q, want the second for want of the slot", len(plugins), refusals)
	}
	if got := waitingIn(t, plugins[0].cache); strings.Contains(got, waitreason.OtherScheduler) {
		t.Errorf("pods of a profile are taken for another scheduler's: %s", got)
	}
}

// Whichever client of whichever profile finds that the API server is away, the scheduler asks
// afterwards whether it was restored from a backup.
func TestEveryProfileNoticesARestore(t *testing.T) {
	api, asked := slotAPI(t), make(chan string, 100)
	api.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			if strings.HasSuffix(req.URL.Path, "/slotclaims/any") {
				return nil, errors.New("the API server is away")
			}
			if req.URL.Query().Get("limit") == "1" {
				asked <- req.URL.Path
			}
			return next.RoundTrip(req)
		})
	})
	ctx, plugins := started(t, api, config.ClaimByNode, config.ClaimByScheduler, config.ClaimByScheduler)
	await.That(t, "the ledger to be in step", plugins[0].cache.Synced)
	if plugins[0].claims != nil {
		t.Error("a profile with claimMode Node claims slots")
	}
	for i, p := range plugins[1:] {
		if _, err := p.claims.Client.KubeslotV1alpha1().SlotClaims().Get(ctx, "any", metav1.GetOptions{}); err == nil {
			t.Fatal("got a claim")
		}
		await.That(t, fmt.Sprint("profile ", i+1, " to ask"), func() bool { return len(asked) > 0 })
		for len(asked) > 0 {
			<-asked
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// The ledger follows what the API server's watches show.
func TestTheLedgerFollowsTheWatches(t *testing.T) {
	const slices, claims = "/apis/kubeslot.io/v1alpha1/deviceslices", "/apis/kubeslot.io/v1alpha1/slotclaims"
	events := map[string]chan event{slices: make(chan event), claims: make(chan event)}
	_, plugins := started(t, serve(t, slotLists(), events), config.ClaimByNode)
	b := plugins[0].cache
	kind := func(kind string) metav1.TypeMeta {
		return metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: kind}
	}
	reports, taken := as(slice("node-a", "0", reported("cam-000001")), "s", "2"), as(claim("cam-000001-0", "C:x:node-a"), "c", "3")
	reports.TypeMeta, taken.TypeMeta = kind("DeviceSlice"), kind("SlotClaim")
	more := reports.DeepCopy()
	more.ResourceVersion, more.Spec.Devices = "4", append(more.Spec.Devices, reported("cam-000002"))
	for _, step := range []struct {
		path, verb string
		object     any
		free       int // then
	}{
		{slices, "ADDED", reports, 1},
		{claims, "ADDED", taken, 0},
		{slices, "MODIFIED", more, 1},
		{claims, "DELETED", taken, 2},
		{slices, "DELETED", more, 0},
	} {
		events[step.path] <- event{step.verb, step.object}
		await.That(t, step.verb+" to be followed", func() bool {
			free := 0
			b.Read(func(l *ledger.Ledger) { free = l.Free("cam") })
			return free == step.free
		})
	}
}

// Without a CRD, or the right to read, pods that ask for no slots are scheduled, and
// the others are told why they wait, and not kept waiting for that.
func TestWithoutCRDs(t *testing.T) {
	all := []string{"/apis/akri.sh/v0/configurations", "/apis/kubeslot.io/v1alpha1/deviceslices", "/apis/kubeslot.io/v1alpha1/slotclaims"}
	for name, lacks := range map[string][]string{"none": all, "no configurations": all[:1], "no deviceslices": all[1:2], "no slotclaims": all[2:]} {
		t.Run(name, func(t *testing.T) {
			served := slotLists()
			for _, path := range lacks {
				delete(served, path)
			}
			ctx, plugins := started(t, serve(t, served, nil), config.ClaimByNode)
			p, plain := plugins[0], pod("plain", "1")
			plain.Spec.Containers[0].Resources = v1.ResourceRequirements{}
			if _, status := p.PreFilter(ctx, framework.NewCycleState(), plain, nil); !status.IsSkip() {
				t.Errorf("PreFilter of a pod without devices: %v", status)
			}
			start := time.Now()
			_, status := p.PreFilter(ctx, framework.NewCycleState(), pod("p", "1"), nil)
			wantStatus(t, "PreFilter of a pod with devices", status, fwk.UnschedulableAndUnresolvable, "are the CRDs installed")
			if took := time.Since(start); took > 9*time.Second { // not as long as for a ledger that takes its time
				t.Errorf("it was kept waiting for %v", took)
			}
		})
	}
}

// started is the plugin of each profile, made as upstream makes them, of a scheduler with
// that API.
func started(t *testing.T, kubeConfig *restclient.Config, modes ...config.ClaimMode) (context.Context, []*Plugin) {
	t.Helper()
	schedulermetrics.Register()
	_, ctx := ktesting.NewTestContext(t)
	client := fake.NewClientset()
	ctx, cancel := context.WithCancel(ctx)
	t.Cleanup(cancel) // before the API ends

	var plugins []*Plugin
	factory := &Factory{Options: &binding.Options{}}
	registry := frameworkruntime.Registry{
		queuesort.Name: queuesort.New,
		Name: func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
			made, err := factory.New(ctx, args, handle)
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
	for i, mode := range modes {
		profiles = append(profiles, schedulerconfig.KubeSchedulerProfile{SchedulerName: fmt.Sprint("profile-", i),
			Plugins:      &schedulerconfig.Plugins{QueueSort: on(queuesort.Name), MultiPoint: on(Name)},
			PluginConfig: []schedulerconfig.PluginConfig{{Name: Name, Args: &config.ConfigurationResourcesArgs{ClaimMode: mode}}}})
	}
	informers := scheduler.NewInformerFactory(client, 0, nil)
	informers.Core().V1().Nodes().Informer() // as the scheduler asks for
	if _, err := profile.NewMap(ctx, profiles, registry, func(string) events.EventRecorderLogger { return &events.FakeRecorder{} },
		frameworkruntime.WithKubeConfig(kubeConfig), frameworkruntime.WithClientSet(client),
		frameworkruntime.WithInformerFactory(informers), frameworkruntime.WithPodActivator(&rig{})); err != nil {
		t.Fatal(err)
	}
	informers.Start(ctx.Done())
	return ctx, plugins
}

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
			plugin, err := (&Factory{Options: &binding.Options{}}).New(context.Background(), test.args, &fakeHandle{})
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
