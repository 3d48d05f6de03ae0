package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/record"

	akriclient "github.com/kubeslot/kubeslot/types/client/clientset/versioned"
	akrischeme "github.com/kubeslot/kubeslot/types/client/clientset/versioned/scheme"
	akriinformers "github.com/kubeslot/kubeslot/types/client/informers/externalversions"
	akriv0informers "github.com/kubeslot/kubeslot/types/client/informers/externalversions/akri/v0"
)

// Requests a second to the API server, and at once: claims of a node full of
// device pods that all start together are not to queue here.
const qps, burst = 100, 200

// cluster is the API server as this node sees it: clients, and caches that fill
// when it can be reached.
type cluster struct {
	server      string // its URL
	node        string // this one's name
	kube        kubernetes.Interface
	akri        akriclient.Interface
	broadcaster record.EventBroadcaster
	events      record.EventRecorder

	podInformers   informers.SharedInformerFactory // of this node
	nodeInformers  informers.SharedInformerFactory // this node
	akriInformers  akriinformers.SharedInformerFactory
	pods           coreinformers.PodInformer
	nodes          coreinformers.NodeInformer
	instances      akriv0informers.InstanceInformer
	configurations akriv0informers.ConfigurationInformer
}

// newCluster makes the clients; it reads the kubeconfig and connects to nothing.
func newCluster(kubeconfig, node string) (*cluster, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig %q: %w", kubeconfig, err)
	}
	config.QPS, config.Burst = qps, burst
	config = rest.AddUserAgent(config, "kubecri")
	c := &cluster{server: config.Host, node: node}
	if c.akri, err = akriclient.NewForConfig(config); err != nil {
		return nil, err
	}
	core := rest.CopyConfig(config) // custom resources have no protobuf
	core.ContentType, core.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	if c.kube, err = kubernetes.NewForConfig(core); err != nil {
		return nil, err
	}

	c.podInformers = selected(c.kube, "spec.nodeName", node)
	c.pods = c.podInformers.Core().V1().Pods()
	c.pods.Informer()
	c.nodeInformers = selected(c.kube, metav1.ObjectNameField, node)
	c.nodes = c.nodeInformers.Core().V1().Nodes()
	c.akriInformers = akriinformers.NewSharedInformerFactory(c.akri, 0)
	c.instances = c.akriInformers.Akri().V0().Instances()
	c.configurations = c.akriInformers.Akri().V0().Configurations()

	eventScheme := runtime.NewScheme()
	utilruntime.Must(scheme.AddToScheme(eventScheme))
	utilruntime.Must(akrischeme.AddToScheme(eventScheme))
	c.broadcaster = record.NewBroadcaster()
	c.events = c.broadcaster.NewRecorder(eventScheme, corev1.EventSource{Component: "kubecri", Host: node})
	return c, nil
}

// recordEvents sends events from now on, until run has ended; others are lost.
func (c *cluster) recordEvents() {
	c.broadcaster.StartStructuredLogging(3)
	c.broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: c.kube.CoreV1().Events("")})
}

// run keeps the caches filled until ctx is done.
func (c *cluster) run(ctx context.Context) {
	c.podInformers.StartWithContext(ctx)
	c.nodeInformers.StartWithContext(ctx)
	c.akriInformers.Start(ctx.Done())
	<-ctx.Done()
	c.broadcaster.Shutdown()
	c.podInformers.Shutdown()
	c.nodeInformers.Shutdown()
	c.akriInformers.Shutdown()
}

// selected makes informers of the objects whose field has the value.
func selected(client kubernetes.Interface, field, value string) informers.SharedInformerFactory {
	return informers.NewSharedInformerFactoryWithOptions(client, 0,
		informers.WithTransform(withoutManagedFields),
		informers.WithTweakListOptions(func(options *metav1.ListOptions) {
			options.FieldSelector = fields.OneTermEqualSelector(field, value).String()
		}))
}

// withoutManagedFields saves their memory: pods and nodes are not updated from here.
func withoutManagedFields(obj any) (any, error) {
	if o, err := meta.Accessor(obj); err == nil {
		o.SetManagedFields(nil)
	}
	return obj, nil
}
