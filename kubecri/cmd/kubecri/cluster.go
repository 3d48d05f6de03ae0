package main

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/kubecri/connection"
	"github.com/kubeslot/kubeslot/kubecri/informers"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/client/clientset/versioned"
	ourscheme "github.com/kubeslot/kubeslot/types/client/clientset/versioned/scheme"
	"github.com/kubeslot/kubeslot/types/client/restored"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// cluster is the API server as this node sees it: clients, and caches that fill
// when it can be reached.
type cluster struct {
	server      string // its URL
	node        string // this one's name
	kube        kubernetes.Interface
	client      versioned.Interface // of akri.sh and kubeslot.io
	broadcaster record.EventBroadcaster
	events      record.EventRecorder

	*informers.Informers
	restored *restored.Guard
	*afterRestore
}

// newCluster makes the clients; it reads the kubeconfig and connects to nothing.
func newCluster(kubeconfig, node string) (*cluster, error) {
	api, err := connection.NewClients(kubeconfig)
	if err != nil {
		return nil, err
	}
	c := &cluster{
		server: api.Server, node: node, kube: api.Kube, client: api.Client,
		restored: api.Restored, afterRestore: &afterRestore{},
	}
	c.Informers = informers.New(c.kube, c.client, node)
	eventScheme := runtime.NewScheme()
	utilruntime.Must(scheme.AddToScheme(eventScheme))
	utilruntime.Must(ourscheme.AddToScheme(eventScheme))
	c.broadcaster = record.NewBroadcaster()
	c.events = c.broadcaster.NewRecorder(eventScheme, corev1.EventSource{Component: "kubecri", Host: node})
	return c, nil
}

// recordEvents sends events from now on, until run has ended; others are lost.
func (c *cluster) recordEvents() {
	c.broadcaster.StartStructuredLogging(3)
	c.broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: c.kube.CoreV1().Events("")})
}

// run keeps the caches filled until ctx is done. It ends the process when the API
// server was restored from a backup: the next life reads everything anew, and what runs
// on the node is not touched.
func (c *cluster) run(ctx context.Context) {
	c.Start(ctx.Done())
	go c.followVersions(ctx)
	var caches []restored.Cache
	for _, i := range c.informers() {
		caches = append(caches, restored.Cache{Resource: i.resource, FieldSelector: i.selector, Informer: i.informer})
	}
	if err := c.restored.Run(ctx, c.kube.Discovery().RESTClient(), caches...); err != nil {
		logger := klog.FromContext(ctx)
		if noted := c.noteRestore(); noted != nil {
			logger.Error(noted, "The next process takes slots at once: other nodes may not have claimed theirs again by then")
		}
		logger.Error(err, "Ending")
		klog.FlushAndExit(klog.ExitFlushTimeout, 1)
	}
	c.broadcaster.Shutdown()
	c.Shutdown()
}

// namedInformer is an informer and what it is of.
type namedInformer struct {
	resource schema.GroupVersionResource
	selector string // of fields
	informer cache.SharedIndexInformer
}

func (c *cluster) informers() []namedInformer {
	here := fields.OneTermEqualSelector("spec.nodeName", c.node).String()
	return []namedInformer{
		{corev1.SchemeGroupVersion.WithResource("pods"), here, c.Pods.Informer()},
		{corev1.SchemeGroupVersion.WithResource("nodes"), fields.OneTermEqualSelector(metav1.ObjectNameField, c.node).String(), c.Nodes.Informer()},
		{akriv0.SchemeGroupVersion.WithResource("configurations"), "", c.Configurations.Informer()},
		{v1alpha1.SchemeGroupVersion.WithResource("deviceslices"), here, c.Slices.Informer()},
		{v1alpha1.SchemeGroupVersion.WithResource("slotclaims"), here, c.Claims.Informer()},
	}
}
