package intercept

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	corelisters "k8s.io/client-go/listers/core/v1"
	ktesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	componentmetrics "k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/kubecri/claims"
	"github.com/kubeslot/kubeslot/kubecri/metrics"
	"github.com/kubeslot/kubeslot/kubecri/proxy"
	"github.com/kubeslot/kubeslot/types/akri/client/clientset/versioned/fake"
	informers "github.com/kubeslot/kubeslot/types/akri/client/informers/externalversions"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

type emptyRuntime struct{}

func (emptyRuntime) ListContainers(context.Context, *runtimeapi.ListContainersRequest, ...grpc.CallOption) (*runtimeapi.ListContainersResponse, error) {
	return &runtimeapi.ListContainersResponse{}, nil
}

func (emptyRuntime) ListPodSandbox(context.Context, *runtimeapi.ListPodSandboxRequest, ...grpc.CallOption) (*runtimeapi.ListPodSandboxResponse, error) {
	return &runtimeapi.ListPodSandboxResponse{}, nil
}

func (emptyRuntime) GetContainerEvents(context.Context, *runtimeapi.GetEventsRequest, ...grpc.CallOption) (grpc.ServerStreamingClient[runtimeapi.ContainerEventResponse], error) {
	return nil, status.Error(codes.Unimplemented, "no events")
}

// runtime answers forwarded requests.
type runtime struct {
	forwarded []byte
	err       error
}

func (r *runtime) forward(request []byte) proxy.Forward {
	return func(extra []byte) ([]byte, error) {
		r.forwarded = append(append([]byte(nil), request...), extra...)
		if r.err != nil {
			return nil, r.err
		}
		return proto.Marshal(&runtimeapi.CreateContainerResponse{ContainerId: "c1"})
	}
}

type flow struct {
	calls  map[string]proxy.Interceptor
	client *fake.Clientset
	counts componentmetrics.KubeRegistry
}

func newFlow(t *testing.T, device func(context.Context, string) (discovery.Device, error)) *flow {
	t.Helper()
	client := fake.NewSimpleClientset(&akriv0.Instance{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "cam-a1", ResourceVersion: "1"},
		Spec: akriv0.InstanceSpec{ConfigurationName: "cam", Capacity: 1, Nodes: []string{node}}})
	version := 1 // the fake leaves resourceVersions alone, which tell new copies from old
	client.PrependReactor("update", "instances", func(action ktesting.Action) (bool, k8sruntime.Object, error) {
		version++
		action.(ktesting.UpdateAction).GetObject().(*akriv0.Instance).ResourceVersion = strconv.Itoa(version)
		return false, nil, nil
	})
	factory := informers.NewSharedInformerFactory(client, 0)
	counts := componentmetrics.NewKubeRegistry()
	numbers := metrics.New(counts)
	c, err := claims.New(claims.Config{Metrics: numbers, Node: node, Client: client, Instances: factory.Akri().V0().Instances(), Configurations: factory.Akri().V0().Configurations(),
		Runtime: emptyRuntime{}, Events: record.NewFakeRecorder(10), Grace: time.Hour, Resync: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	go func() { defer close(ended); c.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended; factory.Shutdown() })
	pods := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	if err := pods.Add(requesting("1")); err != nil {
		t.Fatal(err)
	}
	if device == nil {
		device = func(context.Context, string) (discovery.Device, error) {
			return discovery.Device{Properties: map[string]string{"URL": "rtsp://a"}}, nil
		}
	}
	calls, err := New(Config{Node: node, Pods: corelisters.NewPodLister(pods), Claims: c, Device: device, DeviceTimeout: time.Second, Metrics: numbers,
		CDI: func(_ context.Context, instance string, _ discovery.Device) string { return "akri.sh/" + instance }})
	if err != nil {
		t.Fatal(err)
	}
	return &flow{calls, client, counts}
}

func (f *flow) create(t *testing.T, container string, annotations map[string]string, r *runtime) (request []byte, err error) {
	t.Helper()
	request, err = proto.Marshal(&runtimeapi.CreateContainerRequest{
		PodSandboxId: "box",
		Config:       &runtimeapi.ContainerConfig{Metadata: &runtimeapi.ContainerMetadata{Name: container}},
		SandboxConfig: &runtimeapi.PodSandboxConfig{Annotations: annotations,
			Metadata: &runtimeapi.PodSandboxMetadata{Namespace: pod.Namespace, Name: pod.Name, Uid: pod.UID}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return request, f.calls[runtimeapi.RuntimeService_CreateContainer_FullMethodName](t.Context(), request, r.forward(request))
}

func (f *flow) wantUsage(t *testing.T, want string) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(2 * time.Millisecond) {
		in, err := f.client.AkriV0().Instances("default").Get(t.Context(), "cam-a1", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if in.Spec.DeviceUsage["cam-a1-0"] == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("deviceUsage is %v, and in 10 s did not become %q", in.Spec.DeviceUsage, want)
		}
	}
}

func TestAssignedContainerGetsItsDeviceUntilItIsRemoved(t *testing.T) {
	for _, call := range []struct {
		method  string
		request proto.Message
	}{
		{runtimeapi.RuntimeService_RemoveContainer_FullMethodName, &runtimeapi.RemoveContainerRequest{ContainerId: "c1"}},
		{runtimeapi.RuntimeService_StopPodSandbox_FullMethodName, &runtimeapi.StopPodSandboxRequest{PodSandboxId: "box"}},
		{runtimeapi.RuntimeService_RemovePodSandbox_FullMethodName, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: "box"}},
	} {
		t.Run(call.method, func(t *testing.T) {
			f, r := newFlow(t, nil), &runtime{}
			if _, err := f.create(t, "main", assigned(good), r); err != nil {
				t.Fatal(err)
			}
			f.wantUsage(t, "C:u1:node-a")
			got := &runtimeapi.CreateContainerRequest{}
			if err := proto.Unmarshal(r.forwarded, got); err != nil {
				t.Fatal(err)
			}
			if got.Config.Annotations["akri.agent.slot-cam-a1-0"] != "C:u1:cam-a1-0" || len(got.Config.Envs) != 3 ||
				len(got.Config.CDIDevices) != 1 || got.Config.CDIDevices[0].Name != "akri.sh/cam-a1" || got.Config.Metadata.Name != "main" {
				t.Errorf("the runtime got %v", got.Config)
			}

			request, err := proto.Marshal(call.request)
			if err != nil {
				t.Fatal(err)
			}
			// While the runtime does not do it, the container is there.
			r.err = status.Error(codes.Unknown, "busy")
			if err := f.calls[call.method](t.Context(), request, r.forward(request)); err == nil {
				t.Error("the runtime's error was swallowed")
			}
			f.wantUsage(t, "C:u1:node-a")
			r.err = nil
			if err := f.calls[call.method](t.Context(), request, r.forward(request)); err != nil {
				t.Fatal(err)
			}
			f.wantUsage(t, "")
		})
	}
}

func TestResultsAreCounted(t *testing.T) {
	f, r := newFlow(t, nil), &runtime{}
	for _, annotations := range []map[string]string{assigned(good), assigned("{"), nil} {
		_, _ = f.create(t, "main", annotations, r)
	}
	r.err = status.Error(codes.Unknown, "no such image")
	_, _ = f.create(t, "main", assigned(good), r)
	request, err := proto.Marshal(&runtimeapi.RemoveContainerRequest{ContainerId: "c1"})
	if err != nil {
		t.Fatal(err)
	}
	r.err = nil
	if err := f.calls[runtimeapi.RuntimeService_RemoveContainer_FullMethodName](t.Context(), request, r.forward(request)); err != nil {
		t.Fatal(err)
	}
	f.wantUsage(t, "")
	if err := testutil.GatherAndCompare(f.counts, strings.NewReader(`# HELP kubecri_injections_total [ALPHA] CreateContainer calls that concerned devices, by result: injected, refused, failed (to be retried), rejected (by the runtime), ignored.
# TYPE kubecri_injections_total counter
kubecri_injections_total{result="failed"} 0
kubecri_injections_total{result="ignored"} 0
kubecri_injections_total{result="injected"} 1
kubecri_injections_total{result="refused"} 2
kubecri_injections_total{result="rejected"} 1
# HELP kubecri_claims_taken_total [ALPHA] Claims written for containers about to be created.
# TYPE kubecri_claims_taken_total counter
kubecri_claims_taken_total 1
`), "kubecri_injections_total", "kubecri_claims_taken_total"); err != nil {
		t.Error(err)
	}
}

func TestFailedCreateReleases(t *testing.T) {
	f, r := newFlow(t, nil), &runtime{err: status.Error(codes.Unknown, "no such image")}
	if _, err := f.create(t, "main", assigned(good), r); status.Code(err) != codes.Unknown {
		t.Errorf("got %v, want the runtime's error", err)
	}
	if r.forwarded == nil {
		t.Fatal("not forwarded")
	}
	f.wantUsage(t, "")
}

func TestOtherContainersPassUntouched(t *testing.T) {
	f, r := newFlow(t, nil), &runtime{}
	for name, annotations := range map[string]map[string]string{"side": assigned(good), "debug": nil} {
		request, err := f.create(t, name, annotations, r)
		if err != nil || string(request) != string(r.forwarded) {
			t.Errorf("%s: %v, or the request was changed", name, err)
		}
	}
}

func TestNeverWithoutItsDevices(t *testing.T) {
	unknown := func(context.Context, string) (discovery.Device, error) {
		return discovery.Device{}, errors.New("waiting for the first report")
	}
	for _, test := range []struct {
		name        string
		annotations map[string]string
		device      func(context.Context, string) (discovery.Device, error)
		code        codes.Code
		says        []string
	}{
		{"not assigned", nil, nil, codes.FailedPrecondition, []string{`"main"`, "ns/cams", "akri.sh/cam"}},
		{"malformed", assigned("{"), nil, codes.FailedPrecondition, []string{`"main"`, "ns/cams", "JSON"}},
		{"no such slot", assigned(strings.Replace(good, "cam-a1-0", "cam-a1-7", 1)), nil, codes.FailedPrecondition, []string{"cam-a1-7", "capacity 1"}},
		{"device not known", assigned(good), unknown, codes.Unavailable, []string{"ns/cams", "first report"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			f, r := newFlow(t, test.device), &runtime{}
			_, err := f.create(t, "main", test.annotations, r)
			if status.Code(err) != test.code || r.forwarded != nil {
				t.Errorf("got %v (forwarded %t), want %s and nothing forwarded", err, r.forwarded != nil, test.code)
			}
			for _, part := range test.says {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not say %q", err, part)
				}
			}
			f.wantUsage(t, "")
		})
	}
}

// The API server has a static pod as its mirror, under another UID.
func TestAStaticPodIsToldThatItGetsNoSlots(t *testing.T) {
	mirror := requesting("1")
	mirror.UID = "of the mirror"
	mirror.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: pod.UID}
	pods := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	if err := pods.Add(mirror); err != nil {
		t.Fatal(err)
	}
	i := &interceptor{Config: Config{Node: node, Pods: corelisters.NewPodLister(pods)}}
	got, err := i.due(map[string]string{sourceAnnotation: "file"}, pod, "main")
	if err != nil || !got.none() || got.ignored == nil {
		t.Fatalf("due() = %+v, %v, want nothing due and a warning", got, err)
	}
	for _, part := range []string{"akri.sh/cam", "static pod"} {
		if !strings.Contains(got.ignored.Error(), part) {
			t.Errorf("the warning %q does not say %q", got.ignored, part)
		}
	}
	// Whoever else says to be its mirror is not looked at.
	if got, err := i.due(nil, pod, "main"); err != nil || got.ignored != nil {
		t.Errorf("due() of an ordinary pod = %+v, %v", got, err)
	}
}
