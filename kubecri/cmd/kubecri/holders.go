package main

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/kubecri/informers"
	"github.com/kubeslot/kubeslot/kubecri/soplugins"
	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	pb "github.com/kubeslot/kubeslot/types/plugin/v1alpha1"
)

// nodeLabels returns the labels of this node's Node. It waits until the Node is known, or ctx is done.
func (c *cluster) nodeLabels(ctx context.Context) (labels map[string]string, known bool) {
	if !cache.WaitForCacheSync(ctx.Done(), c.Nodes.Informer().HasSynced) {
		return nil, false
	}
	node, err := c.Nodes.Lister().Get(c.node)
	if err != nil {
		return nil, false // there is none yet
	}
	return node.Labels, true
}

// advertised reports whether this node's Node says that device plugins of kubecri give out a resource.
func (c *cluster) advertised(name types.ResourceName) bool {
	node, err := c.Nodes.Lister().Get(c.node)
	return err == nil && slices.Contains(v1alpha1.PluginResources(node), corev1.ResourceName(name))
}

// holders returns the containers of this node that were assigned anything of device plugins; not ok
// until its pods are known.
func (c *cluster) holders() (all []*pb.Holder, ok bool) {
	if !c.Pods.Informer().HasSynced() {
		return nil, false
	}
	pods, err := c.Pods.Lister().List(labels.Everything())
	for _, pod := range pods {
		all = append(all, holdersOf(pod)...)
	}
	return all, err == nil
}

// holdersOf returns the containers of a pod that were assigned anything of device plugins; none once
// the pod has ended.
func holdersOf(pod *corev1.Pod) []*pb.Holder {
	if informers.PodEnded(pod) {
		return nil
	}
	info, err := assignment.Granted(pod.Annotations, string(pod.UID), pod.Spec.NodeName)
	if err != nil || info == nil {
		return nil // its containers are refused, or have nothing
	}
	var all []*pb.Holder
	for name, c := range info.Containers() {
		from := map[string]string{}
		for want, name := range c.AllocateFrom {
			if !soplugins.IsSlot(want) {
				from[string(want)] = string(name)
			}
		}
		if len(from) > 0 {
			all = append(all, &pb.Holder{Namespace: pod.Namespace, Pod: pod.Name, Uid: string(pod.UID),
				Container: name, AllocateFrom: from})
		}
	}
	return all
}

// followHolders calls changed when holders may return something else, until ctx is done.
func (c *cluster) followHolders(ctx context.Context, changed func()) {
	registration, err := c.Pods.Informer().AddEventHandler(informers.OnChange(changed))
	if err != nil {
		klog.FromContext(ctx).Error(err, "Device plugins are not sent which containers hold their devices")
		return
	}
	if cache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
		changed() // there may be no pods
	}
}
