package slotcache

import (
	"errors"
	"fmt"
	"maps"

	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/kube-scheduler/informer"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// SetConfiguration follows a Configuration.
func (b *Cache) SetConfiguration(c *akriv0.Configuration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := b.ledger.Configuration(c.Name)
	b.record(b.ledger.SetConfiguration(c))
	if before != nil && (!apiequality.Semantic.DeepEqual(before.Spec.AllowedNamespaces, c.Spec.AllowedNamespaces) ||
		before.GivesSlots() != c.GivesSlots() || before.Spec.IsDRA() != c.Spec.IsDRA()) {
		b.retryAskingFor(func(of *akriv0.Configuration) bool { return of.Name == c.Name }, nil)
	}
}

// DeleteConfiguration forgets a Configuration.
func (b *Cache) DeleteConfiguration(c *akriv0.Configuration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	// Their next try, which this lock holds up, tells them that it is gone.
	b.retryAskingFor(func(of *akriv0.Configuration) bool { return of.Name == c.Name }, nil)
	b.record(b.ledger.DeleteConfiguration(c.Namespace, c.Name))
}

// SetNamespace has the waiting pods of a namespace tried that may have become allowed to
// use what they ask for.
func (b *Cache) SetNamespace(namespace *v1.Namespace) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.retryAskingFor(func(of *akriv0.Configuration) bool { return of.Spec.AllowedNamespaces != nil },
		func(pod *v1.Pod, _ *Waiting) bool { return pod.Namespace == namespace.Name })
}

// retryAskingFor has the waiting pods tried that pods chooses and that ask for a Configuration that
// of chooses, itself or one of its Instances. The caller holds mu.
func (b *Cache) retryAskingFor(of func(*akriv0.Configuration) bool, pods func(*v1.Pod, *Waiting) bool) {
	b.Queue.RetryWaiting(func(resource string) bool {
		c := b.ledger.Configuration(resource)
		return c != nil && of(c)
	}, pods)
}

// noteKind records whether the name is that of a Configuration whose slots nodes advertise. The caller holds mu.
func (b *Cache) noteKind(name string) {
	if c := b.ledger.Configuration(name); c != nil && c.Name == name && c.GivesSlots() {
		b.kinds.Store(name, true)
	} else {
		b.kinds.Delete(name)
	}
}

// SetNode enters a node's labels, by which a Configuration's spec.discovery says who
// reaches the devices.
func (b *Cache) SetNode(node *v1.Node) {
	b.mu.Lock()
	defer b.mu.Unlock()
	// To a node that chooses slots, or is not there, pods that wait for what it reaches did not come.
	comes := b.noteMode(node) || b.ledger.OnlyReports(node.Name)
	b.record(b.ledger.SetNode(node.Name, node.Labels))
	if comes {
		b.record(b.ledger.Renew(node.Name))
	}
}

// DeleteNode forgets a node.
func (b *Cache) DeleteNode(node *v1.Node) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.choosing.Delete(node.Name)
	b.record(b.ledger.DeleteNode(node.Name))
}

// NodeHandler follows nodes. Heartbeats change nothing.
func (b *Cache) NodeHandler() cache.ResourceEventHandler {
	return informer.Handler(b.SetNode, b.DeleteNode, sameLabels[*v1.Node])
}

func sameLabels[T metav1.Object](a, b T) bool { return maps.Equal(a.GetLabels(), b.GetLabels()) }

// SliceFeed follows DeviceSlices. The ledger is their store.
func (b *Cache) SliceFeed() *informer.Feed[*v1alpha1.DeviceSlice] {
	return &informer.Feed[*v1alpha1.DeviceSlice]{
		Names:   func(visit func(string)) { b.Read(func(l *ledger.Ledger) { l.EachSlice(visit) }) },
		Set:     b.SetSlice,
		Deleted: func(s *v1alpha1.DeviceSlice) { b.DeleteSlice(s.Name) },
		Missing: b.DeleteSlice,
		// What containers get of the devices, and what people read.
		Trim: func(s *v1alpha1.DeviceSlice) {
			for i := range s.Spec.Devices {
				s.Spec.Devices[i].Properties = nil
			}
			s.Spec.Problems = nil
		},
	}
}

// SetSlice follows what a node reports.
func (b *Cache) SetSlice(s *v1alpha1.DeviceSlice) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if uid, version := b.ledger.SliceVersion(s.Name); s.ResourceVersion != "" && uid == string(s.UID) && version == s.ResourceVersion {
		return // listed again
	}
	event, leftOut := b.ledger.SetSlice(s)
	b.reportLeftOut(s, leftOut)
	b.record(event)
}

// DeleteSlice forgets a DeviceSlice.
func (b *Cache) DeleteSlice(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.leftOut, name)
	b.record(b.ledger.DeleteSlice(name))
}

// maxReasons is how many devices of a slice the log says the reason of. A node may
// report hundreds that are wrong.
const maxReasons = 3

// reportLeftOut logs which devices of a slice are not given to pods, and why, once
// each time that this changes. The caller holds mu.
func (b *Cache) reportLeftOut(s *v1alpha1.DeviceSlice, leftOut []error) {
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
