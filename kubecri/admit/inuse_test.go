package admit_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/kubecri/admit"
	"github.com/kubeslot/kubeslot/kubecri/admit/admittest"
	"github.com/kubeslot/kubeslot/kubecri/claims"
	"github.com/kubeslot/kubeslot/kubecri/soplugins"
	"github.com/kubeslot/kubeslot/plugins/load"
	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/device"
)

// oneContainer is a runtime that has one container, of a pod that the API server does not have any longer.
type oneContainer struct {
	claims.Runtime // asked nothing else
	state          runtimeapi.ContainerState
	sandbox        runtimeapi.PodSandboxState
	uid            string
	assignment     string
	err            error
}

func (r *oneContainer) ListContainers(context.Context, *runtimeapi.ListContainersRequest, ...grpc.CallOption,
) (*runtimeapi.ListContainersResponse, error) {
	return &runtimeapi.ListContainersResponse{Containers: []*runtimeapi.Container{
		{Id: "c", PodSandboxId: "s", State: r.state, Metadata: &runtimeapi.ContainerMetadata{Name: "main"}}}}, r.err
}

func (r *oneContainer) ListPodSandbox(context.Context, *runtimeapi.ListPodSandboxRequest, ...grpc.CallOption,
) (*runtimeapi.ListPodSandboxResponse, error) {
	return &runtimeapi.ListPodSandboxResponse{Items: []*runtimeapi.PodSandbox{{Id: "s", State: r.sandbox,
		Metadata:    &runtimeapi.PodSandboxMetadata{Namespace: "ns", Name: "forced", Uid: r.uid},
		Annotations: map[string]string{assignment.HolderAnnotation: r.uid, assignment.Annotation: r.assignment}}}}, nil
}

// admitter admits containers with widgets on a node whose runtime has what it says.
func admitter(t *testing.T, runtime claims.Runtime, w *admittest.World) *admit.Admitter {
	t.Helper()
	plugins, err := soplugins.New(soplugins.Config{Node: admittest.Node,
		Loaded: []load.Plugin[device.Device]{{Name: "widgets", Value: &widgets{}}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(quiet(t))
	ended := make(chan struct{})
	go func() { defer close(ended); plugins.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	a, err := admit.New(admit.Config{Node: admittest.Node, Pods: admittest.NoPods(), Claims: w.Claims,
		DeviceTimeout: 10 * time.Second, Plugins: plugins, Runtime: runtime, Metrics: w.Metrics,
		Device: func(context.Context, string) (discovery.Device, error) { return discovery.Device{}, nil }})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// A device of a plugin that the container of another pod may still use is not given to a second one,
// whatever the API server has of that pod.
func TestDeviceInUse(t *testing.T) {
	const (
		running, created = runtimeapi.ContainerState_CONTAINER_RUNNING, runtimeapi.ContainerState_CONTAINER_CREATED
		exited, unknown  = runtimeapi.ContainerState_CONTAINER_EXITED, runtimeapi.ContainerState_CONTAINER_UNKNOWN
		ready, gone      = runtimeapi.PodSandboxState_SANDBOX_READY, runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	)
	has := func(state runtimeapi.ContainerState, sandbox runtimeapi.PodSandboxState, uid, assignment string,
	) oneContainer {
		return oneContainer{state: state, sandbox: sandbox, uid: uid, assignment: assignment}
	}
	w := admittest.NewWorld(t, nil)
	for name, test := range map[string]struct {
		runtime oneContainer
		says    string // "" if it is admitted
	}{
		"it runs": {has(running, ready, "old", widget),
			`container "main" of pod ns/forced (UID old)`},
		"it may be started":           {has(created, ready, "old", widget), "is in use"},
		"its process may live":        {has(unknown, gone, "old", widget), "is in use"},
		"it has ended":                {has(exited, ready, "old", widget), ""},
		"it cannot be started":        {has(created, gone, "old", widget), ""},
		"it has another device":       {has(running, ready, "old", other), ""},
		"it is of the same pod":       {has(running, ready, admittest.Pod.UID, widget), ""},
		"the runtime does not answer": {oneContainer{err: errors.New("no runtime")}, "is not known: list containers"},
	} {
		t.Run(name, func(t *testing.T) {
			admission, err := admitter(t, &test.runtime, w).Admit(quiet(t), container(widget))
			switch {
			case test.says == "" && err != nil:
				t.Error(err)
			case test.says != "" && (status.Code(err) != codes.Unavailable ||
				!strings.Contains(err.Error(), test.says)):
				t.Errorf("%v, want Unavailable and %q", err, test.says)
			case err == nil:
				admission.Failed(status.Error(codes.Aborted, "not created"))
			}
		})
	}
}

// Of two pods that were assigned one device and whose containers are created at the same time, one
// starts: the other is refused until the runtime has not created that one.
func TestDeviceAtTheSameTime(t *testing.T) {
	w := admittest.NewWorld(t, nil)
	a := admitter(t, w.Runtime, w)
	first, err := a.Admit(quiet(t), container(widget))
	if err != nil {
		t.Fatal(err)
	}
	second := container(widget)
	second.Pod.Name, second.Pod.UID = "second", "u2"
	second.PodAnnotations = map[string]string{assignment.HolderAnnotation: "u2", assignment.Annotation: widget}
	_, err = a.Admit(quiet(t), second)
	if err == nil || !strings.Contains(err.Error(), `is in use by container "main" of pod ns/cams`) {
		t.Errorf("the second is admitted beside the first: %v", err)
	}
	again, err := a.Admit(quiet(t), container(widget))
	if err != nil {
		t.Errorf("the kubelet's second try: %v", err)
	} else {
		again.Failed(status.Error(codes.Aborted, "not created"))
	}
	first.Failed(status.Error(codes.Aborted, "not created"))
	if _, err := a.Admit(quiet(t), second); err == nil || !strings.Contains(err.Error(), `pod "u2"`) {
		t.Errorf("%v, want the plugin to be asked for the second", err) // which it refuses in this test
	}
}

// After a start of kubecri the Node says what plugins give out that have not said so yet: a container that
// requests it does not start without.
func TestRequestedBeforeThePluginHasSaidSo(t *testing.T) {
	w := admittest.NewWorld(t, nil)
	p := admittest.Requesting("")
	p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"example.com/widget": resource.MustParse("1")}
	pods := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	if err := pods.Add(p); err != nil {
		t.Fatal(err)
	}
	for name, advertised := range map[string]bool{"advertised": true, "another's": false} {
		t.Run(name, func(t *testing.T) {
			a, err := admit.New(admit.Config{Node: admittest.Node, Pods: corelisters.NewPodLister(pods),
				Claims: w.Claims, DeviceTimeout: time.Second, Metrics: w.Metrics,
				Advertised: func(name types.ResourceName) bool { return advertised && name == "example.com/widget" },
				Device:     func(context.Context, string) (discovery.Device, error) { return discovery.Device{}, nil }})
			if err != nil {
				t.Fatal(err)
			}
			c := container("")
			c.PodAnnotations = nil
			if _, err := a.Admit(quiet(t), c); (status.Code(err) == codes.FailedPrecondition) != advertised {
				t.Errorf("advertised %v: %v", advertised, err)
			}
		})
	}
}
