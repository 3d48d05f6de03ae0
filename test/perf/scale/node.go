package main

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/kubecri/advertise"
	"github.com/kubeslot/kubeslot/kubecri/agent"
	"github.com/kubeslot/kubeslot/kubecri/claims"
	"github.com/kubeslot/kubeslot/kubecri/connection"
	"github.com/kubeslot/kubeslot/kubecri/crilist"
	"github.com/kubeslot/kubeslot/kubecri/informers"
	"github.com/kubeslot/kubeslot/kubecri/nodewriter"
	"github.com/kubeslot/kubeslot/test/cluster"
	"github.com/kubeslot/kubeslot/types/client/clientset/versioned"
)

// traffic counts the bytes of connections.
type traffic struct{ sent, received atomic.Int64 }

// counted is a connection whose bytes are counted.
type counted struct {
	net.Conn
	*traffic
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.received.Add(int64(n))
	return n, err
}

func (c counted) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.sent.Add(int64(n))
	return n, err
}

// identity is the configuration of a node's kubecri, with a certificate and a connection
// of its own. host is the API server's.
func identity(c *cluster.Cluster, host, node string, t *traffic) (*rest.Config, error) {
	cert, key, err := c.KubecriCertificate(node)
	if err != nil {
		return nil, err
	}
	admin, err := c.RESTConfig()
	if err != nil {
		return nil, err
	}
	config := &rest.Config{Host: host, QPS: 100, Burst: 200} // as kubecri has
	config.TLSClientConfig = rest.TLSClientConfig{CAData: admin.CAData, CertData: cert, KeyData: key}
	config.Dial = countedDial(t)
	return config, nil
}

// countedDial opens connections whose bytes are counted.
func countedDial(t *traffic) func(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := &net.Dialer{}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return counted{conn, t}, nil
	}
}

// node is a hollow node: kubecri without kubelet and runtime.
type node struct {
	name    string
	agent   *agent.Agent
	claims  *claims.Claims
	synced  []cache.InformerSynced
	runtime *emptyRuntime
	stop    context.CancelFunc
	ended   sync.WaitGroup
}

// start runs a hollow node, as kubecri/cmd/kubecri puts it together.
func start(ctx context.Context, name string, config *rest.Config) (*node, error) {
	n := &node{name: name, runtime: &emptyRuntime{}}
	api, err := connection.New(config)
	if err != nil {
		return nil, err
	}
	client, err := versioned.NewForConfigAndClient(config, api)
	if err != nil {
		return nil, err
	}
	core := rest.CopyConfig(config)
	core.ContentType, core.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	kube, err := kubernetes.NewForConfigAndClient(core, api)
	if err != nil {
		return nil, err
	}
	caches := informers.New(kube, client, name)
	events := record.NewFakeRecorder(0)
	events.Events = nil // nobody reads them

	handlers := discovery.NewRegistry()
	handlers.Add(discovery.NewSource(listed{}, discovery.BuiltInEndpoint))
	if n.agent, err = agent.New(agent.Config{
		NodeName: name, Client: client, KubeClient: kube, Configurations: caches.Configurations, Slices: caches.Slices,
		SliceWritten: caches.SliceWritten,
		Nodes:        caches.Nodes, Registry: handlers, Recorder: events,
	}); err != nil {
		return nil, err
	}
	writer, err := nodewriter.New(nodewriter.Config{Node: name, Client: kube, Nodes: caches.Nodes})
	if err != nil {
		return nil, err
	}
	if _, err = advertise.New(advertise.Config{Node: writer, Pods: caches.Pods, Slices: caches.Slices,
		Configurations: caches.Configurations}); err != nil {
		return nil, err
	}
	if n.claims, err = claims.New(claims.Config{
		Node: name, Client: client, Claims: caches.Claims, Configurations: caches.Configurations, Nodes: caches.Nodes, Pods: caches.Pods,
		Namespaces: claims.NamespacesOf(kube),
		Runtime:    n.runtime, Events: events, Grace: 20 * time.Second, Resync: 30 * time.Second,
	}); err != nil {
		return nil, err
	}
	for _, i := range []cache.SharedIndexInformer{caches.Pods.Informer(), caches.Nodes.Informer(), caches.Slices.Informer(), caches.Claims.Informer(), caches.Configurations.Informer()} {
		n.synced = append(n.synced, i.HasSynced)
	}
	ctx, n.stop = context.WithCancel(ctx)
	caches.Start(ctx.Done())
	for _, run := range []func(context.Context){n.agent.Run, writer.Run, n.claims.Run} {
		n.ended.Go(func() { run(ctx) })
	}
	return n, nil
}

func (n *node) hasSynced() bool {
	for _, synced := range n.synced {
		if !synced() {
			return false
		}
	}
	return true
}

// end stops the node and waits until it has.
func (n *node) end() {
	n.stop()
	n.ended.Wait()
}

// listed is a discovery handler that finds what the details list: a line a device,
// the first line says "shared" or "local".
type listed struct{}

func (listed) Name() string { return "listed" }

func (listed) Discover(ctx context.Context, request discovery.Request, report func(discovery.Result)) error {
	lines := strings.Fields(request.Details)
	result := discovery.Result{Shared: lines[0] == "shared"}
	for _, id := range lines[1:] {
		result.Devices = append(result.Devices, discovery.Device{ID: id, Properties: map[string]string{
			"DEVICE_ADDRESS": "rtsp://cameras.example.com/" + id, "DEVICE_MODEL": "hollow",
		}})
	}
	report(result)
	<-ctx.Done()
	return ctx.Err()
}

// details lists devices for the handler.
func details(how string, n int, format string, args ...any) string {
	text := how
	for i := range n {
		text += "\n" + fmt.Sprintf(format, append(args, i)...)
	}
	return text
}

// emptyRuntime is a runtime that knows the containers that were made here.
type emptyRuntime struct {
	crilist.Runtime // nil: nothing else is asked
	mu              sync.Mutex
	containers      []*runtimeapi.Container
}

func (r *emptyRuntime) ListContainers(context.Context, *runtimeapi.ListContainersRequest, ...grpc.CallOption) (*runtimeapi.ListContainersResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return &runtimeapi.ListContainersResponse{Containers: append([]*runtimeapi.Container(nil), r.containers...)}, nil
}

func (r *emptyRuntime) ListPodSandbox(context.Context, *runtimeapi.ListPodSandboxRequest, ...grpc.CallOption) (*runtimeapi.ListPodSandboxResponse, error) {
	return &runtimeapi.ListPodSandboxResponse{}, nil
}

func (r *emptyRuntime) GetContainerEvents(context.Context, *runtimeapi.GetEventsRequest, ...grpc.CallOption) (grpc.ServerStreamingClient[runtimeapi.ContainerEventResponse], error) {
	return nil, status.Error(codes.Unimplemented, "a hollow node has no events")
}

// add says that a container runs.
func (r *emptyRuntime) add(c *runtimeapi.Container) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.containers = append(r.containers, c)
}

func (r *emptyRuntime) clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.containers = nil
}

// ready is a Node's condition; without it other components would taint the node.
var ready = corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue}
