package agent

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kubeslot/kubeslot/kubecri/informers"
	v0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// watch makes every change of a Configuration queue its name and those that depend on
// it, and every other one that matters wake the writer.
func (a *Agent) watch() {
	queue := func(changed *v0.Configuration, _ bool) {
		a.configurations.Add(changed.Name)
		for _, c := range a.allConfigurations() { // named as an Instance of it
			if v0.MayNameInstanceOf(changed.Name, c.Name) {
				a.configurations.Add(c.Name)
			}
		}
	}
	wakeWriter := func(s *v1alpha1.DeviceSlice, gone bool) {
		if gone {
			a.writer.SliceGone(s)
		} else {
			a.writer.Wake()
		}
	}
	a.synced = []cache.InformerSynced{
		informers.Handle(a.config.Configurations.Informer(), informers.Each(queue)),
		informers.Handle(a.config.Slices.Informer(), informers.Each(wakeWriter)),
		informers.Handle(a.config.Nodes.Informer(), cache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { a.nodeChanged() },
			UpdateFunc: func(old, node any) { a.nodeUpdated(old.(*corev1.Node), node.(*corev1.Node)) },
		}),
	}
}

func (a *Agent) nodeUpdated(old, node *corev1.Node) {
	if old.UID != node.UID || !maps.Equal(old.Labels, node.Labels) {
		a.nodeChanged()
	}
}

// nodeChanged looks at whom the Node's labels select, and at who owns the slices.
func (a *Agent) nodeChanged() {
	for _, c := range a.allConfigurations() {
		if asksForLabels(c) {
			a.configurations.Add(c.Name)
		}
	}
	a.writer.Wake()
}

// node is the Node object of this node; nil while there is none.
func (a *Agent) node() *corev1.Node {
	node, err := a.config.Nodes.Lister().Get(a.config.NodeName)
	if err != nil { // a cache knows no other error than NotFound
		return nil
	}
	return node
}

// oldest says who has a name.
func (a *Agent) oldest() v0.Oldest { return v0.OldestOf(a.allConfigurations()) }

// allConfigurations are those of all namespaces: the resources that they become
// have none.
func (a *Agent) allConfigurations() []*v0.Configuration {
	objs := a.config.Configurations.Informer().GetStore().List()
	all := make([]*v0.Configuration, 0, len(objs))
	for _, obj := range objs {
		all = append(all, obj.(*v0.Configuration))
	}
	return all
}
