package devicepluginmode

import (
	"context"
	"strconv"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

// claimWatch keeps the account's claims of one Configuration, of all nodes, by their label.
type claimWatch struct {
	configuration string
	account       *account
	changed       func(instance string)
	listed        chan struct{} // closed once the claims have been read
	once          sync.Once
	stop          context.CancelFunc
}

// watchClaims begins to watch the Configuration's claims, until ctx is done or stop is
// called.
func (p *Plugins) watchClaims(ctx context.Context, configuration string) *claimWatch {
	ctx, stop := context.WithCancel(ctx)
	w := &claimWatch{configuration: configuration, account: p.account, listed: make(chan struct{}), stop: stop,
		changed: func(instance string) { p.slotsChanged(configuration, instance) }}
	selector := labels.Set{v1alpha1.ConfigurationLabel: configuration}.String()
	api := p.Client.KubeslotV1alpha1().SlotClaims()
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = selector
			return api.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = selector
			return api.Watch(ctx, o)
		},
	}
	logger := klog.FromContext(ctx)
	reflector := cache.NewReflectorWithOptions(cache.ToListWatcherWithWatchListSemantics(lw, p.Client), &v1alpha1.SlotClaim{}, w,
		cache.ReflectorOptions{Logger: &logger, Name: "claims of " + configuration})
	p.running.Go(func() { reflector.RunWithContext(ctx) })
	return w
}

// Add implements cache.ReflectorStore.
func (w *claimWatch) Add(obj any) error { return w.Update(obj) }

// Update implements cache.ReflectorStore.
func (w *claimWatch) Update(obj any) error {
	if c, name, ok := w.read(obj); ok {
		w.account.set(name, claimOf(c))
		w.changed(name.Instance)
	}
	return nil
}

// Delete implements cache.ReflectorStore.
func (w *claimWatch) Delete(obj any) error {
	if c, name, ok := w.read(obj); ok {
		w.account.gone(name, c.UID)
		w.changed(name.Instance)
	}
	return nil
}

// Replace implements cache.ReflectorStore.
func (w *claimWatch) Replace(list []any, resourceVersion string) error {
	version, _ := strconv.ParseUint(resourceVersion, 10, 64)
	claims := map[slot.Name]claim{}
	for _, obj := range list {
		if c, name, ok := w.read(obj); ok {
			claims[name] = claimOf(c)
		}
	}
	w.account.replace(w.configuration, claims, version)
	w.once.Do(func() { close(w.listed) })
	w.changed("")
	return nil
}

// Resync implements cache.ReflectorStore.
func (*claimWatch) Resync() error { return nil }

// read returns the claim if it is one of the Configuration's: labels may be anybody's.
func (w *claimWatch) read(obj any) (*v1alpha1.SlotClaim, slot.Name, bool) {
	c, ok := obj.(*v1alpha1.SlotClaim)
	if !ok {
		return nil, slot.Name{}, false
	}
	name, err := c.Slot()
	if err != nil {
		return nil, slot.Name{}, false
	}
	configuration, _ := slot.SplitInstance(name.Instance)
	return c, name, configuration == w.configuration
}
