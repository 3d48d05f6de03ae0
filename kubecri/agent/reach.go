package agent

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/kubecri/agent/deviceslices"
	"github.com/kubeslot/kubeslot/kubecri/agent/reports"
	v0 "github.com/kubeslot/kubeslot/types/akri/v0"
	kubeslotinformers "github.com/kubeslot/kubeslot/types/client/informers/externalversions/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// byHash indexes the slices of a reach.
const byHash = "hash"

// reach is what any node reports of one Configuration with spec.discovery: all of
// the nodes that are selected reach these devices. Safe for concurrent use.
type reach struct {
	configuration v1alpha1.ConfigurationReference
	digits        int
	informer      cache.SharedIndexInformer
	failed        atomic.Pointer[error] // why the informer could not read, as last seen
	// reporters says which of the nodes that report are selected.
	reporters *reporters

	mu   sync.Mutex
	seen map[string]discovery.Device // the devices as last seen, by hash
}

func (a *Agent) newReach(c *v0.Configuration) *reach {
	r := &reach{configuration: reports.Reference(c), digits: c.Spec.HashDigits(), seen: map[string]discovery.Device{}}
	r.reporters = a.newReporters(c, func(node string) { a.sliceChanged(r, r.slicesOf(node)...) })
	r.informer = kubeslotinformers.NewFilteredDeviceSliceInformer(a.config.Client, 0, cache.Indexers{byHash: func(obj any) ([]string, error) {
		return r.hashes(obj.(*v1alpha1.DeviceSlice)), nil
	}}, discoveryOf(c.Name))
	// These fail for an informer alone that has been started.
	_ = r.informer.SetTransform(func(obj any) (any, error) {
		if s, ok := obj.(*v1alpha1.DeviceSlice); ok {
			small := *s // tests' clients share their objects
			small.ManagedFields = nil
			obj = &small
		}
		return obj, nil
	})
	_ = r.informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, reflector *cache.Reflector, err error) {
		r.failed.Store(&err)
		cache.DefaultWatchErrorHandler(ctx, reflector, err)
	})
	_, _ = r.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { a.sliceWritten(r, obj); a.sliceChanged(r, obj) },
		UpdateFunc: func(old, obj any) { a.sliceWritten(r, obj); a.sliceChanged(r, old, obj) },
		DeleteFunc: func(obj any) { a.sliceChanged(r, obj) },
	})
	return r
}

// discoveryOf selects the DeviceSlices and Leases of a Configuration with spec.discovery.
func discoveryOf(configuration string) func(*metav1.ListOptions) {
	return func(o *metav1.ListOptions) {
		o.LabelSelector = labels.Set{deviceslices.DiscoveryLabel: configuration}.String()
	}
}

// sliceWritten has it found out whether the slice's node is selected.
func (a *Agent) sliceWritten(r *reach, obj any) {
	slice, ok := obj.(*v1alpha1.DeviceSlice)
	if !ok || len(r.hashes(slice)) == 0 {
		return
	}
	r.reporters.ask(slice.Spec.NodeName)
}

// sliceChanged tells pods here of devices that are other than before, or gone. versions
// are those of the slice that has changed.
func (a *Agent) sliceChanged(r *reach, versions ...any) {
	var all []notification
	for _, version := range versions {
		if last, ok := version.(cache.DeletedFinalStateUnknown); ok {
			version = last.Obj
		}
		slice, ok := version.(*v1alpha1.DeviceSlice)
		if !ok {
			continue
		}
		for _, hash := range r.hashes(slice) {
			r.mu.Lock()
			before, was := r.seen[hash]
			now, is := r.device(hash) // whichever slice has it
			if is {
				r.seen[hash] = now
			} else {
				delete(r.seen, hash)
			}
			r.mu.Unlock()
			switch {
			case was && !is:
				all = append(all, a.gone(r.configuration.Name, hash))
			case was:
				if what := (&reports.Device{Device: before}).Differences(&reports.Device{Device: now}); len(what) > 0 {
					all = append(all, a.another(r.configuration.Name, hash, what))
				}
			}
		}
	}
	a.reachChanged()
	a.notifyHolders(r.configuration.Name, all)
}

// run keeps the reach up to date until ctx ends.
func (a *Agent) run(ctx context.Context, r *reach) {
	a.discoveries.Go(func() { r.reporters.run(ctx) })
	a.discoveries.Go(func() {
		if cache.WaitForCacheSync(ctx.Done(), r.informer.HasSynced) {
			a.reachChanged() // also when there is nothing
		}
	})
	r.informer.RunWithContext(ctx)
}

func (a *Agent) reachChanged() {
	a.mu.Lock()
	a.announce()
	a.mu.Unlock()
	a.config.ReachChanged()
}

// hashes are those of the slice's devices that are what they say.
func (r *reach) hashes(s *v1alpha1.DeviceSlice) []string {
	var hashes []string
	for i := range s.Spec.Devices {
		if d := &s.Spec.Devices[i]; r.counts(s, d) {
			hashes = append(hashes, d.Hash)
		}
	}
	return hashes
}

// counts reports whether the slice's device is what it says.
func (r *reach) counts(s *v1alpha1.DeviceSlice, d *v1alpha1.Device) bool {
	return d.Shared && d.CountsFor(r.configuration, r.digits, s.Spec.NodeName)
}

// slicesOf are a node's slices.
func (r *reach) slicesOf(node string) (all []any) {
	for _, obj := range r.informer.GetStore().List() {
		if obj.(*v1alpha1.DeviceSlice).Spec.NodeName == node {
			all = append(all, obj)
		}
	}
	return all
}

// reportedBy are the slices that have the device, of nodes that are selected, the oldest
// first: a node that comes later changes nothing of what others have said.
func (r *reach) reportedBy(hash string) []*v1alpha1.DeviceSlice {
	objs, _ := r.informer.GetIndexer().ByIndex(byHash, hash) // the index exists
	var believed []*v1alpha1.DeviceSlice
	for _, obj := range objs {
		if s := obj.(*v1alpha1.DeviceSlice); r.reporters.selected(s.Spec.NodeName) {
			believed = append(believed, s)
		}
	}
	slices.SortFunc(believed, func(a, b *v1alpha1.DeviceSlice) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return believed
}

// reportedElsewhere reports whether another node than this has the device.
func (r *reach) reportedElsewhere(node, hash string) bool {
	return slices.ContainsFunc(r.reportedBy(hash), func(s *v1alpha1.DeviceSlice) bool { return s.Spec.NodeName != node })
}

// device returns the device as the oldest slice that has it says.
func (r *reach) device(hash string) (discovery.Device, bool) {
	believed := r.reportedBy(hash)
	if len(believed) == 0 {
		return discovery.Device{}, false
	}
	first := believed[0]
	at := slices.IndexFunc(first.Spec.Devices, func(d v1alpha1.Device) bool {
		return d.Hash == hash && r.counts(first, &d)
	})
	d := &first.Spec.Devices[at]
	return discovery.Device{ID: d.ID, Properties: d.Properties}, true
}

// all are the hashes of all devices.
func (r *reach) all() []string {
	all := r.informer.GetIndexer().ListIndexFuncValues(byHash)
	if r.reporters.selector.Empty() {
		return all
	}
	return slices.DeleteFunc(all, func(hash string) bool { return len(r.reportedBy(hash)) == 0 })
}

// missing is session.missing of the reach.
func (r *reach) missing() (waitingFor, why string) {
	if r.informer.HasSynced() {
		return "", fmt.Sprintf("none of the nodes that discover for Configuration %s reports it", r.configuration)
	}
	waitingFor = fmt.Sprintf("the DeviceSlices of label %s=%s", deviceslices.DiscoveryLabel, r.configuration.Name)
	if err := r.failed.Load(); err != nil {
		waitingFor += fmt.Sprintf(", which cannot be read: %v", *err)
	}
	return waitingFor, ""
}

// Reached says how many devices of a Configuration with spec.discovery this node
// reaches; false while that is not known, and for other Configurations. Only memory
// is read. Safe for concurrent use.
func (a *Agent) Reached(configuration string) (devices int, known bool) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	switch s := a.sessions[configuration]; {
	case s == nil || s.configuration.Spec.Discovery == nil:
		return 0, false
	case s.reach == nil:
		return 0, true // not selected
	case !s.reach.informer.HasSynced():
		return 0, false
	default:
		oldest := a.oldest()
		all := slices.DeleteFunc(s.reach.all(), func(hash string) bool { return oldest.InForce(slot.InstanceName(configuration, hash)) != nil })
		return len(all), true
	}
}
