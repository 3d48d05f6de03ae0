package repair

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	testclock "k8s.io/utils/clock/testing"

	"github.com/kubeslot/kubeslot/kubecri/nodewriter"
	"github.com/kubeslot/kubeslot/kubecri/soplugins"
	"github.com/kubeslot/kubeslot/test/await"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
)

const (
	slots   = `{"nodename":"node-a","runningcontainer":{"main":{"requests":{"akri.sh/cam":1},"allocatefrom":{"akri.sh/cam/0":"cam-a1-0"}}}}`
	plugged = `{"nodename":"node-a","runningcontainer":{"main":{"requests":{"alpha/grp/gpu/cards":1},"allocatefrom":{"alpha/grp/gpu/0/cards":"alpha/grp/gpu/G0/cards"}}}}`
)

// runtime says of each container what the annotations of its OCI spec are, and notes
// which are stopped.
type runtime struct {
	mu      sync.Mutex
	specs   map[string]map[string]string // nil for a container that cannot be asked about
	asked   []string
	stopped chan string
	release chan struct{} // ends each stop; nil: at once
}

func (r *runtime) ContainerStatus(_ context.Context, in *runtimeapi.ContainerStatusRequest, _ ...grpc.CallOption) (*runtimeapi.ContainerStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = append(r.asked, in.ContainerId)
	annotations, ok := r.specs[in.ContainerId]
	if !ok || !in.Verbose {
		return nil, errors.New("no such container")
	}
	info, err := json.Marshal(map[string]any{"pid": 1, "runtimeSpec": map[string]any{"annotations": annotations}})
	return &runtimeapi.ContainerStatusResponse{Info: map[string]string{"info": string(info)}}, err
}

func (r *runtime) StopContainer(_ context.Context, in *runtimeapi.StopContainerRequest, _ ...grpc.CallOption) (*runtimeapi.StopContainerResponse, error) {
	r.stopped <- in.ContainerId
	if r.release != nil {
		<-r.release
	}
	return &runtimeapi.StopContainerResponse{}, nil
}

type fixture struct {
	*Repairer
	runtime *runtime
	events  *record.FakeRecorder
	clock   *testclock.FakePassiveClock
	spec    akriv0.ConfigurationSpec
	unknown bool // the API server has not been read
	// condition returns the node's condition as "Status reason message".
	condition func() string
}

func newFixture(t *testing.T) *fixture {
	f := &fixture{runtime: &runtime{specs: map[string]map[string]string{}, stopped: make(chan string, 10)}, events: record.NewFakeRecorder(10),
		clock: testclock.NewFakePassiveClock(time.Unix(10000, 0))}
	client := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}})
	factory := informers.NewSharedInformerFactory(client, 0)
	conditions, err := nodewriter.New(nodewriter.Config{Node: "node-a", Client: client,
		Nodes: factory.Core().V1().Nodes()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	factory.Start(ctx.Done())
	ended := make(chan struct{})
	go func() { defer close(ended); conditions.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended; factory.Shutdown() })
	f.condition = func() string {
		n, err := client.CoreV1().Nodes().Get(ctx, "node-a", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range n.Status.Conditions {
			if c.Type == Condition {
				return strings.Join([]string{string(c.Status), c.Reason, c.Message}, " ")
			}
		}
		return ""
	}
	f.Repairer, err = New(Config{Node: "node-a", Runtime: f.runtime, Events: f.events, Conditions: conditions, Clock: f.clock, Advice: "Look there.",
		Configuration: func(name string) (*akriv0.Configuration, bool) {
			if name != "cam" || f.unknown {
				return nil, !f.unknown
			}
			return &akriv0.Configuration{Spec: f.spec}, true
		},
		PluginsMarkedSince: func() time.Time { return time.Unix(5000, 0) }})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func container(id string, annotations map[string]string) *runtimeapi.Container {
	return &runtimeapi.Container{Id: id, PodSandboxId: "box", State: runtimeapi.ContainerState_CONTAINER_RUNNING, Annotations: annotations,
		CreatedAt: time.Unix(6000, 0).UnixNano(),
		Labels:    map[string]string{"io.kubernetes.pod.uid": "u1", "io.kubernetes.pod.name": "p", "io.kubernetes.pod.namespace": "ns", "io.kubernetes.container.name": "main"}}
}

// look inspects the one container of a pod with the assignment, and returns whether it
// lacks anything.
func (f *fixture) look(t *testing.T, c *runtimeapi.Container, assigned string, more ...string) bool {
	t.Helper()
	annotations := map[string]string{assignment.HolderAnnotation: "u1", assignment.Annotation: assigned}
	for i := 0; i < len(more); i += 2 {
		annotations[more[i]] = more[i+1]
	}
	return f.Inspect(t.Context(), []*runtimeapi.Container{c}, map[string]*runtimeapi.PodSandbox{"box": {Id: "box", Annotations: annotations}})[c.Id]
}

func (f *fixture) wantStopped(t *testing.T, id string) {
	t.Helper()
	if got := await.Next(t, "container "+id+" to be stopped", f.runtime.stopped); got != id {
		t.Errorf("stopped %s, want %s", got, id)
	}
}

func (f *fixture) wantCondition(t *testing.T, parts ...string) {
	t.Helper()
	await.That(t, fmt.Sprintf("the condition to say %q", parts), func() (bool, string) {
		got := f.condition()
		return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(got, part) }), got
	})
}

// What a container has or lacks, by the annotations that CRI shows, those of its OCI spec,
// and its pod's.
func TestLacks(t *testing.T) {
	slot := map[string]string{"akri.agent.slot-cam-a1-0": "C:u1:cam-a1-0"}
	mark := map[string]string{soplugins.Annotation: "alpha/grp/gpu/G0/cards"}
	old := container("c", nil)
	old.CreatedAt = time.Unix(4000, 0).UnixNano()
	exited := container("c", nil)
	exited.State = runtimeapi.ContainerState_CONTAINER_EXITED
	side := container("c", nil)
	side.Labels["io.kubernetes.container.name"] = "side"
	for name, test := range map[string]struct {
		container *runtimeapi.Container
		spec      map[string]string
		assigned  string
		pod       []string // further annotations
		unasked   bool     // the runtime cannot be asked
		want      bool
	}{
		"slots, through the proxy":         {container: container("c", slot), assigned: slots},
		"slots, through NRI":               {container: container("c", nil), spec: slot, assigned: slots},
		"slots, past kubecri":              {container: container("c", nil), assigned: slots, want: true},
		"devices, through the proxy":       {container: container("c", mark), assigned: plugged},
		"devices, through NRI":             {container: container("c", nil), spec: mark, assigned: plugged},
		"devices, past kubecri":            {container: container("c", nil), assigned: plugged, want: true},
		"devices, by an older kubecri":     {container: old, assigned: plugged},
		"slots, long past kubecri":         {container: old, assigned: slots, want: true},
		"another container of the pod":     {container: side, assigned: slots},
		"one that has ended":               {container: exited, assigned: slots},
		"a static pod's":                   {container: container("c", nil), assigned: slots, pod: []string{"kubernetes.io/config.source", "file"}},
		"an assignment to another":         {container: container("c", nil), assigned: slots, pod: []string{assignment.HolderAnnotation, "u2"}},
		"an assignment that is not JSON":   {container: container("c", nil), assigned: "{"},
		"a runtime that cannot be asked":   {container: container("c", nil), assigned: slots, unasked: true},
		"an annotation of somebody else's": {container: container("c", map[string]string{"a": "b"}), spec: map[string]string{"a": "b"}, assigned: slots, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			if !test.unasked {
				f.runtime.specs["c"] = test.spec
			}
			if got := f.look(t, test.container, test.assigned, test.pod...); got != test.want {
				t.Errorf("lacks its devices: %v, want %v", got, test.want)
			}
			if test.want {
				f.wantStopped(t, "c")
			} else if len(f.runtime.stopped) > 0 {
				t.Error("stopped")
			}
		})
	}
}

// A container without its devices is stopped, once at a time, its pod is told once, and
// the node says so until none has been seen for a while.
func TestStopped(t *testing.T) {
	f := newFixture(t)
	f.runtime.specs["c"] = nil
	f.runtime.release = make(chan struct{})
	f.Inspect(t.Context(), nil, nil)
	f.wantCondition(t, "False")
	for range 2 {
		f.look(t, container("c", nil), slots)
	}
	f.wantStopped(t, "c")
	f.wantCondition(t, "True", `container "main" of pod ns/p`, "Look there.")
	select {
	case event := <-f.events.Events:
		for _, part := range []string{"StartedWithoutDevices", `"main"`, "is stopped", "slot cam-a1-0"} {
			if !strings.Contains(event, part) {
				t.Errorf("event %q does not say %q", event, part)
			}
		}
	default:
		t.Error("no event")
	}
	if len(f.events.Events)+len(f.runtime.stopped) > 0 {
		t.Error("told or stopped twice")
	}
	close(f.runtime.release)
	f.clock.SetTime(f.clock.Now().Add(clearAfter - time.Second))
	f.Inspect(t.Context(), nil, nil)
	f.wantCondition(t, "True")
	f.clock.SetTime(f.clock.Now().Add(time.Second))
	f.Inspect(t.Context(), nil, nil)
	f.wantCondition(t, "False")
}

// A Configuration may leave such containers alone; nothing is stopped before the
// Configurations are known.
func TestLeft(t *testing.T) {
	f := newFixture(t)
	f.runtime.specs["c"] = nil
	f.unknown = true
	if !f.look(t, container("c", nil), slots) || len(f.events.Events) > 0 {
		t.Error("without Configurations it is to be seen, and no more")
	}
	f.unknown, f.spec.MissingDevices = false, akriv0.MissingDevicesIgnore
	if !f.look(t, container("c", nil), slots) {
		t.Error("it has no devices, left alone or not")
	}
	select {
	case event := <-f.events.Events:
		if !strings.Contains(event, "is left running without its devices") {
			t.Errorf("event %q", event)
		}
	default:
		t.Error("no event")
	}
	f.runtime.specs["d"] = nil
	if f.look(t, container("d", nil), plugged); true {
		f.wantStopped(t, "d") // of no Configuration
	}
	if len(f.runtime.stopped) > 0 {
		t.Error("stopped")
	}
}

// Of several that are left running the node names the one that was created last, in whatever order the runtime lists
// them: it would be written again and again.
func TestConditionNamesTheLatest(t *testing.T) {
	f := newFixture(t)
	f.spec.MissingDevices = akriv0.MissingDevicesIgnore
	c, d := container("c", nil), container("d", nil)
	d.Labels["io.kubernetes.pod.name"], d.CreatedAt = "later", c.CreatedAt+1
	f.runtime.specs["c"], f.runtime.specs["d"] = nil, nil
	box := &runtimeapi.PodSandbox{Id: "box",
		Annotations: map[string]string{assignment.HolderAnnotation: "u1", assignment.Annotation: slots}}
	f.Inspect(t.Context(), []*runtimeapi.Container{d, c}, map[string]*runtimeapi.PodSandbox{"box": box})
	f.wantCondition(t, "True", `container "main" of pod ns/later`)
}

// The runtime is asked once about a container that has its devices.
func TestAskedOnce(t *testing.T) {
	f := newFixture(t)
	f.runtime.specs["c"] = map[string]string{"akri.agent.slot-cam-a1-0": "C:u1:cam-a1-0"}
	for range 3 {
		f.look(t, container("c", nil), slots)
	}
	if len(f.runtime.asked) != 1 {
		t.Errorf("asked %v", f.runtime.asked)
	}
	f.Inspect(t.Context(), nil, nil)
	if len(f.whole)+len(f.recorded) > 0 {
		t.Error("it remembers containers that are gone")
	}
}

// A container whose sandbox the runtime did not say yet is looked at again.
func TestSandboxThatIsNotKnownYet(t *testing.T) {
	f := newFixture(t)
	c := container("c", nil)
	f.runtime.specs["c"] = nil
	if len(f.Inspect(t.Context(), []*runtimeapi.Container{c}, nil)) > 0 {
		t.Error("it lacks what nobody is known to have assigned")
	}
	if !f.look(t, c, slots) {
		t.Error("it lacks nothing once its sandbox is known")
	}
	f.wantStopped(t, "c")
}
