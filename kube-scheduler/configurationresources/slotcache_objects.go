package configurationresources

import (
	"errors"
	"fmt"
	"maps"

	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

func (b *slotCache) setConfiguration(c *akriv0.Configuration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := b.ledger.Configuration(c.Name)
	event := b.ledger.SetConfiguration(c)
	b.noteKind(c.Name)
	b.record(event)
	if before != nil && !apiequality.Semantic.DeepEqual(before.Spec.AllowedNamespaces, c.Spec.AllowedNamespaces) {
		b.tryAllowed(func(_ *v1.Pod, of *akriv0.Configuration) bool { return of.Name == c.Name })
	}
}

func (b *slotCache) deleteConfiguration(c *akriv0.Configuration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	asking := b.askingFor(func(_ *v1.Pod, of *akriv0.Configuration) bool { return of.Name == c.Name })
	event := b.ledger.DeleteConfiguration(c.Namespace, c.Name)
	b.noteKind(c.Name)
	b.record(event)
	if b.ledger.Configuration(c.Name) == nil {
		b.queue.RetryNow(asking...) // which tells them that it is gone
	}
}

// noteKind records whether the name is a Configuration's. The caller holds mu.
func (b *slotCache) noteKind(name string) {
	if c := b.ledger.Configuration(name); c != nil && c.Name == name {
		b.kinds.Store(name, true)
	} else {
		b.kinds.Delete(name)
	}
}

// setNode enters a node's labels, by which a Configuration's spec.discovery says who
// reaches the devices.
func (b *slotCache) setNode(node *v1.Node) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.noteMode(node)
	b.record(b.ledger.SetNode(node.Name, node.Labels))
}

func (b *slotCache) deleteNode(node *v1.Node) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.choosing.Delete(node.Name)
	b.record(b.ledger.DeleteNode(node.Name))
}

func sameLabels(a, b *v1.Node) bool { return maps.Equal(a.Labels, b.Labels) }

func (b *slotCache) sliceFeed() *feed[*v1alpha1.DeviceSlice] {
	return &feed[*v1alpha1.DeviceSlice]{
		names:   b.eachSlice,
		set:     func(s *v1alpha1.DeviceSlice, _ bool) { b.setSlice(s) },
		deleted: func(s *v1alpha1.DeviceSlice) { b.deleteSlice(s.Name) },
		missing: b.deleteSlice,
	}
}

// trimSlice drops what containers get of the devices, and what people read.
func trimSlice(s *v1alpha1.DeviceSlice) {
	for i := range s.Spec.Devices {
		s.Spec.Devices[i].Properties = nil
	}
	s.Spec.Problems = nil
}

func (b *slotCache) setSlice(s *v1alpha1.DeviceSlice) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if uid, version := b.ledger.SliceVersion(s.Name); s.ResourceVersion != "" && uid == string(s.UID) && version == s.ResourceVersion {
		return // listed again
	}
	event, leftOut := b.ledger.SetSlice(s)
	b.reportLeftOut(s, leftOut)
	b.record(event)
}

func (b *slotCache) deleteSlice(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.leftOut, name)
	b.record(b.ledger.DeleteSlice(name))
}

func (b *slotCache) eachSlice(visit func(name string)) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	b.ledger.EachSlice(visit)
}

// maxReasons is how many devices of a slice the log says the reason of. A node may
// report hundreds that are wrong.
const maxReasons = 3

// reportLeftOut logs which devices of a slice are not given to pods, and why, once
// each time that this changes. The caller holds mu.
func (b *slotCache) reportLeftOut(s *v1alpha1.DeviceSlice, leftOut []error) {
	if len(leftOut) == 0 {
		delete(b.leftOut, s.Name)
		return
	}
	reasons := errors.Join(leftOut[:min(maxReasons, len(leftOut))]...)
	text := fmt.Sprintf("%d: %.1000s", len(leftOut), reasons)
	if b.leftOut[s.Name] == text {
		return
	}
	b.leftOut[s.Name] = text
	b.logger.Info("Devices that a node reports are left out", "node", s.Spec.NodeName, "deviceSlice", s.Name,
		"devices", len(leftOut), "reasons", fmt.Sprintf("%.1000s", reasons))
}
