package main

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/kubecri/connection"
	"github.com/kubeslot/kubeslot/kubecri/informers"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	ourscheme "github.com/kubeslot/kubeslot/types/client/clientset/versioned/scheme"
	"github.com/kubeslot/kubeslot/types/client/restored"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// cluster is the API server as this node sees it: clients, and caches that fill
// when it can be reached.
type cluster struct {
	*connection.Clients
	node        string // this one's name
	broadcaster record.EventBroadcaster
	events      record.EventRecorder

	*informers.Informers
	*afterRestore
}

// newCluster makes the clients; it reads the kubeconfig and connects to nothing.
func newCluster(kubeconfig, node string) (*cluster, error) {
	api, err := connection.NewClients(kubeconfig)
	if err != nil {
		return nil, err
	}
	c := &cluster{Clients: api, node: node, Informers: informers.New(api.Kube, api.Client, node),
		afterRestore: &afterRestore{}}
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
	c.broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: c.Kube.CoreV1().Events("")})
}

// run keeps the caches filled until ctx is done. It ends the process when the API
// server was restored from a backup: the next life reads everything anew, and what runs
// on the node is not touched.
func (c *cluster) run(ctx context.Context) {
	c.Start(ctx.Done())
	go c.followVersions(ctx)
	if err := c.Restored.Run(ctx, c.Kube.Discovery().RESTClient(), c.caches()...); err != nil {
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

// caches are the informers, and what they are of.
func (c *cluster) caches() []restored.Cache {
	here := fields.OneTermEqualSelector("spec.nodeName", c.node).String()
	this := fields.OneTermEqualSelector(metav1.ObjectNameField, c.node).String()
	ours := v1alpha1.SchemeGroupVersion
	return []restored.Cache{
		{Resource: corev1.SchemeGroupVersion.WithResource("pods"), FieldSelector: here, Informer: c.Pods.Informer()},
		{Resource: corev1.SchemeGroupVersion.WithResource("nodes"), FieldSelector: this, Informer: c.Nodes.Informer()},
		{Resource: akriv0.SchemeGroupVersion.WithResource("configurations"), Informer: c.Configurations.Informer()},
		{Resource: ours.WithResource("deviceslices"), FieldSelector: here, Informer: c.Slices.Informer()},
		{Resource: ours.WithResource("slotclaims"), FieldSelector: here, Informer: c.Claims.Informer()},
	}
}
