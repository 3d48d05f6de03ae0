// Package admittest has what tests of admissions need: a pod that was assigned a
// slot, an API server that has the slot's Configuration, and the node's claims.
package admittest

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	kubeinformers "k8s.io/client-go/informers"
	kubefake "k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	ktesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	componentmetrics "k8s.io/component-base/metrics"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeslot/kubeslot/kubecri/claims"
	"github.com/kubeslot/kubeslot/kubecri/crilist"
	"github.com/kubeslot/kubeslot/kubecri/metrics"
	"github.com/kubeslot/kubeslot/test/await"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/client/clientset/versioned/fake"
	informers "github.com/kubeslot/kubeslot/types/client/informers/externalversions"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// Node is the node's name.
const Node = "node-a"

// Good assigns slot cam-a1-0 to the container "main".
const Good = `{"nodename":"node-a","runningcontainer":{"main":{"requests":{"akri.sh/cam":1},"allocatefrom":{"akri.sh/cam/0":"cam-a1-0"}}}}`

// Pod is the pod.
var Pod = claims.Pod{Namespace: "ns", Name: "cams", UID: "u1"}

// Assigned returns the pod's annotations with the scheduler's assignment.
func Assigned(text string) map[string]string {
	return map[string]string{assignment.HolderAnnotation: Pod.UID, assignment.Annotation: text}
}

// Requesting returns the pod, whose container "main" asks for n of akri.sh/cam.
func Requesting(n string) *corev1.Pod {
	p := &corev1.Pod{}
	p.Namespace, p.Name, p.UID = Pod.Namespace, Pod.Name, "u1"
	p.Spec.SchedulerName = "other"
	main := corev1.Container{Name: "main"}
	if n != "" {
		main.Resources.Requests = corev1.ResourceList{"akri.sh/cam": resource.MustParse(n), "cpu": resource.MustParse("1")}
	}
	p.Spec.Containers = []corev1.Container{main, {Name: "side"}}
	return p
}

// World is the API server, which has Configuration cam of capacity 1 and the pod,
// and the node's claims, which run until the test ends.
type World struct {
	Claims  *claims.Claims
	Pods    corelisters.PodLister
	Client  *fake.Clientset
	Metrics *metrics.Metrics
	Counts  componentmetrics.KubeRegistry
	Runtime claims.Runtime
	// Stop ends Claims before the test does.
	Stop func()
}

// NewWorld makes a World whose runtime is asked what it has; nil has nothing. Each
// change is made to the configuration of its Claims.
func NewWorld(t testing.TB, runtime claims.Runtime, changes ...func(*claims.Config)) *World {
	t.Helper()
	if runtime == nil {
		runtime = emptyRuntime{}
	}
	client := fake.NewSimpleClientset(&akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "cam"},
		Spec: akriv0.ConfigurationSpec{Capacity: 1}})
	uids := 0 // the fake gives none
	client.PrependReactor("create", "slotclaims", func(action ktesting.Action) (bool, k8sruntime.Object, error) {
		uids++
		action.(ktesting.CreateAction).GetObject().(*v1alpha1.SlotClaim).UID = types.UID(strconv.Itoa(uids))
		return false, nil, nil
	})
	factory := informers.NewSharedInformerFactory(client, 0)
	bound := kubeinformers.NewSharedInformerFactory(kubefake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: Node, UID: "n1"}}), 0)
	counts := componentmetrics.NewKubeRegistry()
	numbers := metrics.New(counts)
	config := claims.Config{Metrics: numbers, Node: Node, Client: client,
		Claims: factory.Kubeslot().V1alpha1().SlotClaims(), Configurations: factory.Akri().V0().Configurations(),
		Pods: bound.Core().V1().Pods(), Nodes: bound.Core().V1().Nodes(),
		Namespaces: claims.NamespacesOf(kubefake.NewClientset()),
		Runtime:    runtime, Events: record.NewFakeRecorder(10), Grace: time.Hour, Resync: time.Hour}
	for _, change := range changes {
		change(&config)
	}
	c, err := claims.New(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	factory.Start(ctx.Done())
	bound.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	go func() { defer close(ended); c.Run(ctx) }()
	stop := func() { cancel(); <-ended }
	t.Cleanup(func() { stop(); factory.Shutdown(); bound.Shutdown() })
	pods := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	if err := pods.Add(Requesting("1")); err != nil {
		t.Fatal(err)
	}
	return &World{Claims: c, Pods: corelisters.NewPodLister(pods), Client: client, Metrics: numbers, Counts: counts,
		Runtime: runtime, Stop: stop}
}

// NoPods is a lister whose node has no pods yet.
func NoPods() corelisters.PodLister {
	return corelisters.NewPodLister(cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}))
}

// WantUsage waits until slot cam-a1-0 is used as wanted, in the form of deviceUsage.
func (w *World) WantUsage(t testing.TB, want string) {
	t.Helper()
	await.That(t, fmt.Sprintf("the slot to be used by %q", want), func() (bool, string) {
		usage := ""
		claim, err := w.Client.KubeslotV1alpha1().SlotClaims().Get(context.Background(), "cam-a1-0", metav1.GetOptions{})
		if err == nil {
			usage = claim.Spec.Usage().String()
		} else if !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		return usage == want, usage
	})
}

type emptyRuntime struct {
	crilist.Runtime // nil: nothing else is asked
}

func (emptyRuntime) ListContainers(context.Context, *runtimeapi.ListContainersRequest, ...grpc.CallOption) (*runtimeapi.ListContainersResponse, error) {
	return &runtimeapi.ListContainersResponse{}, nil
}

func (emptyRuntime) ListPodSandbox(context.Context, *runtimeapi.ListPodSandboxRequest, ...grpc.CallOption) (*runtimeapi.ListPodSandboxResponse, error) {
	return &runtimeapi.ListPodSandboxResponse{}, nil
}

func (emptyRuntime) GetContainerEvents(context.Context, *runtimeapi.GetEventsRequest, ...grpc.CallOption) (grpc.ServerStreamingClient[runtimeapi.ContainerEventResponse], error) {
	return nil, status.Error(codes.Unimplemented, "no events")
}
