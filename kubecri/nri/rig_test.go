package nri

import (
	"cmp"
	"context"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/kubecri/admit"
	"github.com/kubeslot/kubeslot/kubecri/admit/admittest"
	"github.com/kubeslot/kubeslot/kubecri/claims"
	"github.com/kubeslot/kubeslot/kubecri/nodewriter"
	"github.com/kubeslot/kubeslot/test/await"
)

// runtime is the runtime's half of NRI as containerd has it linked in, over a real
// socket.
type runtime struct {
	*adaptation.Adaptation

	mu         sync.Mutex
	pods       []*api.PodSandbox // with containers what it has when it synchronizes
	containers []*api.Container
	listed     int // times that its containers were looked at through CRI
	// version is containerd's; "" is one that has plugins validate.
	version string
	gaveUp  int // times that a plugin did not synchronize
}

// before is a version whose NRI, 0.8, knows no validation.
const before = "v2.1.0"

// inspect is claims.Config.Inspect.
func (r *runtime) inspect(context.Context, []*runtimeapi.Container, map[string]*runtimeapi.PodSandbox) map[string]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.listed++
	return nil
}

// lists is how often its containers were looked at.
func (r *runtime) lists() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.listed
}

// serve starts the runtime's half at the socket.
func (r *runtime) serve(t *testing.T, socket string, options ...adaptation.Option) {
	t.Helper()
	var err error
	none := filepath.Join(filepath.Dir(socket), "none")
	r.Adaptation, err = adaptation.New("containerd", cmp.Or(r.version, "v2.3.7"),
		func(ctx context.Context, synchronize adaptation.SyncCB) error {
			r.mu.Lock()
			pods, containers := r.pods, r.containers
			r.mu.Unlock()
			_, err := synchronize(ctx, pods, containers)
			if err != nil {
				r.mu.Lock()
				r.gaveUp++
				r.mu.Unlock()
			}
			return err
		},
		func(context.Context, []*adaptation.ContainerUpdate) ([]*adaptation.ContainerUpdate, error) {
			return nil, nil
		},
		append([]adaptation.Option{adaptation.WithSocketPath(socket), adaptation.WithPluginPath(none), adaptation.WithPluginConfigPath(none)}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Stop)
}

// flow is a plugin that is connected to the runtime.
type flow struct {
	*admittest.World
	plugin *Plugin
	rt     *runtime
	socket string
	stop   func() // ends the plugin

	mu         sync.Mutex
	conditions []nodewriter.Condition // that the node is to say, in order
}

// condition is what the node is to say of the runtime.
func (f *flow) condition() nodewriter.Condition {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.conditions) == 0 {
		return nodewriter.Condition{}
	}
	return f.conditions[len(f.conditions)-1]
}

type devices func(context.Context, string) (discovery.Device, error)

func camera(context.Context, string) (discovery.Device, error) {
	return discovery.Device{Properties: map[string]string{"URL": "rtsp://a"}, Variables: map[string]bool{"URL": true}}, nil
}

func newFlow(t *testing.T, rt *runtime, device devices) *flow {
	t.Helper()
	f := &flow{World: admittest.NewWorld(t, nil, func(c *claims.Config) { c.Inspect = rt.inspect }), rt: rt, socket: filepath.Join(t.TempDir(), "nri.sock")}
	admitter, err := admit.New(admit.Config{Node: admittest.Node, Pods: f.Pods, Claims: f.Claims, Device: device, DeviceTimeout: time.Minute, Metrics: f.Metrics,
		CDI: func(_ context.Context, instance string, device discovery.Device) string {
			if len(device.DeviceSpecs) > 0 {
				return "" // written out
			}
			return "akri.sh/" + instance
		}})
	if err != nil {
		t.Fatal(err)
	}
	f.plugin, err = New(Config{Node: admittest.Node, Socket: f.socket, Name: "kubecri", Index: "50",
		Admitter: admitter, Claims: f.Claims, Condition: func(c nodewriter.Condition) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.conditions = append(f.conditions, c)
		}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); f.plugin.Run(ctx) }()
	f.stop = func() { cancel(); <-ended }
	t.Cleanup(f.stop)
	return f
}

// start is newFlow with the runtime there.
func start(t *testing.T, rt *runtime, device devices, options ...adaptation.Option) *flow {
	t.Helper()
	f := newFlow(t, rt, device)
	rt.serve(t, f.socket, options...)
	await.That(t, "the plugin to be connected", func() bool { return f.asked(t) })
	return f
}

// asked reports whether the runtime asks the plugin: a moment after it was
// synchronized. The runtime may refuse without the plugin, so the refusal must be
// the plugin's own.
func (f *flow) asked(t *testing.T) bool {
	t.Helper()
	if f.plugin.Connected() != nil {
		return false
	}
	_, err := f.rt.CreateContainer(t.Context(), create("main", "probe", admittest.Assigned("{")))
	return err != nil && strings.Contains(err.Error(), "is not the JSON of a PodInfo")
}

func sandbox(annotations map[string]string) *api.PodSandbox {
	return &api.PodSandbox{Id: "box", Namespace: admittest.Pod.Namespace, Name: admittest.Pod.Name, Uid: admittest.Pod.UID, Annotations: annotations}
}

func create(name, id string, annotations map[string]string) *api.CreateContainerRequest {
	return &api.CreateContainerRequest{Pod: sandbox(annotations), Container: &api.Container{Id: id, PodSandboxId: "box", Name: name, Env: []string{"PATH=/bin"}}}
}
