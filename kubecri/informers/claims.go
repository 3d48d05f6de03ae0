package informers

import (
	"context"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/client/clientset/versioned"
	typed "github.com/kubeslot/kubeslot/types/client/clientset/versioned/typed/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// maxByName is how many claims are each watched by name. More are watched together, by
// spec.nodeName: each watch takes the API server some memory, and a request at every start.
const maxByName = 4

// lookAfter and lookWithin are how long after the last list claims are listed again beside
// watches by name. Each list is a request of each node.
const lookAfter, lookWithin = time.Minute, 2 * time.Minute

// claimWatcher lists and watches the node's SlotClaims: each by its name while they are few,
// and by spec.nodeName while they are more. Safe for concurrent use.
//
// Those that are watched are the claims that there are, and those that may come: of the slots
// that were assigned to pods here. One that somebody else makes in the node's name, for no pod
// here, is seen when claims are listed again, within two minutes.
type claimWatcher struct {
	client typed.SlotClaimInterface
	node   string
	pods   cache.Store // of this node

	mu sync.Mutex
	// known are the claims that there are, by name.
	known map[string]knownClaim
	// named are the running watches by name, nil while there are none.
	named *namedWatches
	// listAgain is whether claims are to be listed before the next watch: watches by name
	// have no version in common to go on from.
	listAgain bool
}

// knownClaim is a claim, and the version from which on it is watched.
type knownClaim struct {
	version string
	claim   *v1alpha1.SlotClaim // one that this node has made, and that was not listed; else nil
}

func newClaimWatcher(client versioned.Interface, node string) *claimWatcher {
	return &claimWatcher{client: client.KubeslotV1alpha1().SlotClaims(), node: node, known: map[string]knownClaim{}}
}

// follow has the watcher know of the node's pods. It is to be called before they are read.
func (c *claimWatcher) follow(pods cache.SharedIndexInformer) {
	c.pods = pods.GetStore()
	_, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { c.adjust() }, UpdateFunc: func(any, any) { c.adjust() }, DeleteFunc: func(any) { c.adjust() },
	})
	if err != nil { // only of an informer that has ended
		panic(err)
	}
}

func (c *claimWatcher) listWatch() *cache.ListWatch {
	return &cache.ListWatch{ListWithContextFunc: c.list, WatchFuncWithContext: c.watch}
}

func (c *claimWatcher) here() fields.Selector {
	return fields.OneTermEqualSelector("spec.nodeName", c.node)
}

func (c *claimWatcher) list(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	options.FieldSelector = c.here().String()
	list, err := c.client.List(ctx, options)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listAgain = false
	// What was made since is not in the list, and is not gone either.
	maps.DeleteFunc(c.known, func(_ string, k knownClaim) bool {
		order, err := resourceversion.CompareResourceVersion(k.version, list.ResourceVersion)
		return k.claim == nil || err != nil || order <= 0
	})
	for i := range list.Items {
		c.known[list.Items[i].Name] = knownClaim{version: list.ResourceVersion}
	}
	return list, nil
}

func (c *claimWatcher) watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	named, err := c.watchNames(ctx, options)
	if named != nil || err != nil {
		return named, err
	}
	options.FieldSelector = c.here().String()
	all, err := c.client.Watch(ctx, options)
	if err != nil {
		return nil, err
	}
	return watch.Filter(all, func(event watch.Event) (watch.Event, bool) {
		c.saw(event)
		return event, true
	}), nil
}

// watchNames begins to watch by names; it returns nil when they are too many.
func (c *claimWatcher) watchNames(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.listAgain {
		return nil, apierrors.NewResourceExpired("the node's SlotClaims are listed again")
	}
	c.named = nil
	wanted := c.wanted()
	if len(wanted) > maxByName {
		return nil, nil
	}
	for name, k := range c.known {
		if k.claim == nil { // all that has happened until then has been seen
			c.known[name] = knownClaim{version: options.ResourceVersion}
		}
	}
	c.listAgain = true
	c.named = newNamedWatches(ctx, c, options.TimeoutSeconds)
	for name := range wanted {
		c.named.start(name, c.known[name])
	}
	c.named.running.Go(c.named.look)
	return c.named, nil
}

// created is told of each claim that this node has made, or has found there. One that is
// gone again goes with the first event of its watch.
func (c *claimWatcher) created(claim *v1alpha1.SlotClaim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.known[claim.Name]; !ok {
		c.known[claim.Name] = knownClaim{claim.ResourceVersion, claim}
	}
	c.adjustLocked()
}

// saw is told of each event of a claim.
func (c *claimWatcher) saw(event watch.Event) {
	claim, ok := event.Object.(*v1alpha1.SlotClaim)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch event.Type {
	case watch.Added, watch.Modified:
		c.known[claim.Name] = knownClaim{version: claim.ResourceVersion}
	case watch.Deleted:
		delete(c.known, claim.Name)
		c.adjustLocked()
	}
}

// wanted are the names of the claims to be watched.
func (c *claimWatcher) wanted() sets.Set[string] {
	names := sets.KeySet(c.known)
	for _, obj := range c.pods.List() {
		pod, ok := obj.(*corev1.Pod)
		if !ok || pod.Spec.NodeName != c.node || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		held, _ := assignment.Held(pod) // of containers that are not created nothing is claimed
		for _, grants := range held {
			for _, g := range grants {
				names.Insert(g.Slot.String())
			}
		}
	}
	return names
}

// adjust has the running watches be of what is wanted now.
func (c *claimWatcher) adjust() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.adjustLocked()
}

func (c *claimWatcher) adjustLocked() {
	if c.named == nil {
		return
	}
	wanted := c.wanted()
	if len(wanted) > maxByName {
		c.named.Stop()
		return
	}
	for name := range wanted {
		c.named.start(name, c.known[name])
	}
	for name, end := range c.named.ends {
		if !wanted.Has(name) {
			end()
			delete(c.named.ends, name)
		}
	}
}

// namedWatches are watches of claims by their names that look like one watch. When one
// ends, all do.
type namedWatches struct {
	watcher *claimWatcher
	events  chan watch.Event
	ctx     context.Context // of all
	end     context.CancelFunc
	timeout *int64
	running sync.WaitGroup

	// Of claimWatcher.mu:
	ends  map[string]context.CancelFunc // of each name
	ended bool
}

func newNamedWatches(ctx context.Context, watcher *claimWatcher, timeout *int64) *namedWatches {
	n := &namedWatches{watcher: watcher, events: make(chan watch.Event), timeout: timeout, ends: map[string]context.CancelFunc{}}
	if timeout != nil {
		n.ctx, n.end = context.WithTimeout(ctx, time.Duration(*timeout)*time.Second)
	} else {
		n.ctx, n.end = context.WithCancel(ctx)
	}
	go func() {
		<-n.ctx.Done()
		watcher.mu.Lock()
		n.ended = true
		watcher.mu.Unlock()
		n.running.Wait()
		close(n.events)
	}()
	return n
}

func (n *namedWatches) ResultChan() <-chan watch.Event { return n.events }
func (n *namedWatches) Stop()                          { n.end() }

// look lists claims from time to time, for those that nobody here has made.
func (n *namedWatches) look() {
	for {
		select {
		case <-time.After(lookAfter + rand.N(lookWithin-lookAfter)):
		case <-n.ctx.Done():
			return
		}
		list, err := n.watcher.client.List(n.ctx, metav1.ListOptions{FieldSelector: n.watcher.here().String(), ResourceVersion: "0"})
		if err != nil {
			continue // it may be there next time; a watch that breaks has claims listed, too
		}
		for i := range list.Items {
			n.watcher.created(&list.Items[i])
		}
	}
}

// start watches one name, if it is not watched yet. The caller holds claimWatcher.mu.
func (n *namedWatches) start(name string, from knownClaim) {
	if n.ended || n.ends[name] != nil {
		return
	}
	ctx, end := context.WithCancel(n.ctx)
	n.ends[name] = end
	n.running.Go(func() {
		defer end()
		if n.follow(ctx, name, from); ctx.Err() == nil {
			n.end()
		}
	})
}

// follow sends the events of one name until its watch ends.
func (n *namedWatches) follow(ctx context.Context, name string, from knownClaim) {
	send := func(event watch.Event) bool {
		select {
		case n.events <- event:
			return true
		case <-ctx.Done():
			return false
		}
	}
	if from.claim != nil && !send(watch.Event{Type: watch.Added, Object: from.claim}) {
		return
	}
	if from.version == "" { // the API server's cache says whether there is one
		from.version = "0"
	}
	w, err := n.watcher.client.Watch(ctx, metav1.ListOptions{
		FieldSelector:   fields.AndSelectors(fields.OneTermEqualSelector(metav1.ObjectNameField, name), n.watcher.here()).String(),
		ResourceVersion: from.version, TimeoutSeconds: n.timeout,
	})
	if err != nil {
		return // claims are listed again, after client-go's pause
	}
	defer w.Stop()
	for {
		select {
		case event, ok := <-w.ResultChan():
			if !ok || event.Type == watch.Error {
				return
			}
			if !send(event) {
				return
			}
			n.watcher.saw(event)
		case <-ctx.Done():
			return
		}
	}
}
