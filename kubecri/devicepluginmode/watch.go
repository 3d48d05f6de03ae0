package devicepluginmode

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"

	"github.com/kubeslot/kubeslot/kubecri/claims"
	"github.com/kubeslot/kubeslot/kubecri/informers"
	kubeslotinformers "github.com/kubeslot/kubeslot/types/client/informers/externalversions/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// claimWatch has a Configuration's claims, of all nodes, by their label.
type claimWatch struct {
	informer cache.SharedIndexInformer
	stop     context.CancelFunc
}

// watchClaims makes the watch of a Configuration's claims; its informer is to be run until stop.
func (p *Plugins) watchClaims(configuration string, stop context.CancelFunc) *claimWatch {
	selector := labels.Set{v1alpha1.ConfigurationLabel: configuration}.String()
	w := &claimWatch{stop: stop, informer: kubeslotinformers.NewFilteredSlotClaimInformer(p.Client, 0,
		claims.ByInstance,
		func(o *metav1.ListOptions) { o.LabelSelector = selector })}
	_ = w.informer.SetTransform(lean) // it fails for an informer that has been started
	informers.Handle(w.informer, informers.Each(p.claimChanged))
	return w
}

// lean leaves out what nobody here asks for: there may be thousands of claims.
func lean(obj any) (any, error) {
	if c, ok := obj.(*v1alpha1.SlotClaim); ok {
		c.ManagedFields, c.OwnerReferences, c.Labels = nil, nil, nil
	}
	return obj, nil
}

// claimChanged has the plugins of a claim's Instance list their ids anew.
func (p *Plugins) claimChanged(c *v1alpha1.SlotClaim, gone bool) {
	if gone {
		p.met.Gone(c.Name, c.UID)
	}
	if name, err := c.Slot(); err == nil {
		configuration, _ := slot.SplitInstance(name.Instance)
		p.slotsChanged(configuration, name.Instance)
	}
}

// claimsListed reports whether the claims of the Configuration have been read.
func (p *Plugins) claimsListed(configuration string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.watches[configuration]
	return w != nil && w.informer.HasSynced()
}

// others are the claims of the Instance's slots that are not this node's, or not of this mode, among them
// those that were met before the watch has shown them.
func (p *Plugins) others(instance string) []*v1alpha1.SlotClaim {
	configuration, _ := slot.SplitInstance(instance)
	p.mu.Lock()
	w := p.watches[configuration]
	p.mu.Unlock()
	if w == nil {
		return nil
	}
	objs, err := w.informer.GetIndexer().ByIndex(claims.InstanceIndex, instance)
	if err != nil { // only for an index that does not exist
		panic(err)
	}
	var shown []*v1alpha1.SlotClaim
	for _, obj := range objs {
		shown = append(shown, obj.(*v1alpha1.SlotClaim))
	}
	return slices.DeleteFunc(p.met.Merge(shown), func(c *v1alpha1.SlotClaim) bool {
		name, err := c.Slot()
		ours := c.Spec.NodeName == p.Node && c.Spec.Pod == nil && !c.Spec.ByDRA() && c.DeletionTimestamp == nil
		return ours || err != nil || name.Instance != instance
	})
}
