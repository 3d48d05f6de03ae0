package deviceplugins

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	apitypes "k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	"github.com/kubeslot/kubeslot/device-scheduler/host"
	"github.com/kubeslot/kubeslot/kube-scheduler/requeue"
	"github.com/kubeslot/kubeslot/types"
	"github.com/kubeslot/kubeslot/types/devicescheduler"
)

// deviceCache owns what is known of nodes and pods: it feeds the host from the API, and
// has the pods tried that wait for what nodes get. All profiles share one.
type deviceCache struct {
	logger klog.Logger
	host   *host.Host
	// plugins is whether there are any, so that sources are complete. There may be some later.
	plugins atomic.Bool
	// feed has the informers feed the device cache, once.
	feed     func() error
	recorder events.EventRecorder
	pods     corelisters.PodLister
	sources  []cache.InformerSynced
	// queue has the pods that ask plugins for something and are not bound. They wait for
	// any node.
	queue   *requeue.Queue[*waiting]
	trouble *trouble

	// changing is held while the host is told of nodes and pods, plugins' calls
	// included: what the device cache knows of a pod and what the host counts is one.
	changing sync.Mutex
	// held is who holds devices: a hold by UID.
	held sync.Map

	// mu also keeps a pod from being entered into the queue once it was deleted from it.
	mu sync.RWMutex
	// unusable says why a node's annotation cannot be read.
	unusable map[string]string
	// recognized are names that some device scheduler answers for, those asked for last. It
	// has a lock of its own.
	recognized *lru.Cache
}

// hold is what a pod holds, and whether the API says so: until then it may be
// taken back.
type hold struct {
	node  string
	info  *types.PodInfo
	bound bool
}

// askedName is a name as the pod's as a whole, or as a container's, which may be in its spec.
type askedName struct {
	whole, spec bool
	name        types.ResourceName
}

// waiting is what a waiting pod asks for.
type waiting struct {
	req  *request
	kind string // pods of one kind ask for the same: they fit a node alike
	// faulted is whether a plugin that failed refused the pod when it was tried last.
	faulted atomic.Bool
	// kubecriAway is whether a node fitted the pod then whose kubecri was away.
	kubecriAway atomic.Bool
}

// newDeviceCache makes a device cache that nothing feeds. observe is told how long each call of
// a plugin took.
func newDeviceCache(logger klog.Logger, schedulers []devicescheduler.DeviceScheduler, observe func(plugin, method string, took time.Duration),
	activator fwk.PodActivator, c clock.Clock) (*deviceCache, error) {
	a := &deviceCache{logger: logger, trouble: newTrouble(logger),
		unusable: map[string]string{}, recognized: lru.New(maxRecognized)}
	var err error
	if a.host, err = host.New(schedulers, host.Options{OnFault: a.trouble.fault, OnCall: observe}); err != nil {
		return nil, err
	}
	a.plugins.Store(len(schedulers) > 0)
	a.queue = requeue.New(requeue.Options[*waiting]{Logger: logger, Activator: activator, Clock: c, Possible: a.fitting})
	return a, nil
}

// run has waiting pods tried until ctx is done.
func (a *deviceCache) run(ctx context.Context) {
	if !cache.WaitForCacheSync(ctx.Done(), a.sources...) {
		return
	}
	a.logger.Info("Devices of nodes and pods are in step with the API")
	a.expectRefused()
	a.queue.RetryWaiting(nil, nil)
	a.queue.Run(ctx)
}

// expectRefused remembers the pods that may have been refused because there was no plugin yet.
func (a *deviceCache) expectRefused() {
	pods, _ := a.pods.List(labels.Everything()) // of a cache: there is no error
	for _, pod := range pods {
		if _, waits := a.queue.Get(pod.UID); waits || pod.Spec.NodeName != "" || !mightAsk(pod) {
			continue
		}
		if r, err := requestOf(pod); err == nil && r != nil {
			a.expect(pod, r)
		}
	}
}

// expect remembers a pod that is about to be tried.
func (a *deviceCache) expect(pod *v1.Pod, r *request) {
	w := &waiting{req: r, kind: r.kind()}
	a.mu.Lock()
	defer a.mu.Unlock()
	// A pod that the informer has deleted would never be forgotten again.
	live, err := a.pods.Pods(pod.Namespace).Get(pod.Name)
	if err == nil && live.UID == pod.UID && live.Spec.NodeName == "" {
		a.queue.Add(pod, w)
		a.queue.Try(pod.UID)
	}
}

// fitting tells which pods fit the node now.
func (a *deviceCache) fitting(node string) func(*waiting) bool {
	n := a.host.Node(node)
	if n == nil {
		return nil
	}
	fits := map[string]bool{} // by kind
	return func(w *waiting) bool {
		if _, judged := fits[w.kind]; !judged {
			fits[w.kind] = a.judge(node, n, w.req, a.host.Ask(w.req.pod, nil)).fits()
		}
		return fits[w.kind]
	}
}

// faulted remembers that a plugin could not answer for the pod: it is tried again when
// the plugin is asked again.
func (a *deviceCache) faulted(uid apitypes.UID) {
	if w, waits := a.queue.Get(uid); waits {
		w.faulted.Store(true)
	}
}

// setNode tells the plugins of a node. When nobody can say what it has, what they knew of it is
// out of date: pods with device requests are kept off it.
func (a *deviceCache) setNode(node *v1.Node) {
	info, err := nodeInfoOf(node)
	a.changing.Lock()
	defer a.changing.Unlock()
	if err != nil {
		if a.setUnusable(node.Name, err.Error()) {
			a.logger.Error(err, "Pods with device requests do not run on a node", "node", klog.KObj(node))
			a.recorder.Eventf(node, nil, v1.EventTypeWarning, "BadDeviceInfo", "Scheduling", "%s",
				shorten(fmt.Sprintf("pods with device requests are not scheduled here: %v", err), maxEventMessage))
		}
		_ = a.host.RemoveNode(node.Name)
		return
	}
	a.setUnusable(node.Name, "")
	before := a.host.Node(node.Name)
	_ = a.host.AddNode(node.Name, info) // its faults are told and retried
	if a.host.Node(node.Name) != before {
		a.queue.Record(freed(node.Name))
	}
}

// setUnusable remembers why a node cannot be used, "" if it can, and reports whether that is news.
func (a *deviceCache) setUnusable(node, why string) (news bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	news = a.unusable[node] != why
	a.unusable[node] = why
	if why == "" {
		delete(a.unusable, node)
	}
	unusableNodes.Set(float64(len(a.unusable)))
	return news
}

func (a *deviceCache) deleteNode(node *v1.Node) {
	a.changing.Lock()
	defer a.changing.Unlock()
	a.setUnusable(node.Name, "")
	_ = a.host.RemoveNode(node.Name)
}

// setPod follows a pod from waiting to bound to ended.
func (a *deviceCache) setPod(pod *v1.Pod) {
	switch {
	case pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed:
		a.deletePod(pod)
	case pod.Spec.NodeName != "":
		a.waitsNoLonger(pod)
		a.observe(pod)
	}
}

func (a *deviceCache) deletePod(pod *v1.Pod) {
	a.waitsNoLonger(pod)
	a.changing.Lock()
	defer a.changing.Unlock()
	if held, ok := a.hold(pod.UID); ok {
		a.giveBack(pod.UID, held.node)
		a.queue.Record(freed(held.node))
	}
}

// waitsNoLonger forgets a pod that is bound, or gone, as the informer's store has it by now.
func (a *deviceCache) waitsNoLonger(pod *v1.Pod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.queue.Delete(pod.UID)
}

// observe counts what a bound pod was given. The first assignment seen stays: what
// is written into the annotation later moves no device.
func (a *deviceCache) observe(pod *v1.Pod) {
	if held, ok := a.hold(pod.UID); ok && held.bound {
		return
	}
	info, err := grantOf(pod)
	logger := klog.LoggerWithValues(a.logger, "pod", klog.KObj(pod), "podUID", pod.UID, "node", pod.Spec.NodeName)
	if err != nil {
		logger.Error(err, "A bound pod's assignment cannot be read; its devices are not counted")
	}
	a.changing.Lock()
	defer a.changing.Unlock()
	held, assumed := a.hold(pod.UID)
	switch {
	case assumed && err == nil && (held.node != pod.Spec.NodeName || !gaveSame(held.info, info)): // another bound it
		a.giveBack(pod.UID, held.node)
		a.queue.Record(freed(held.node))
	case assumed:
		held.bound = true
		a.held.Store(pod.UID, held)
		return
	}
	if info == nil {
		return
	}
	if err := a.host.Take(pod.Spec.NodeName, string(pod.UID), info); err != nil {
		logger.Error(err, "Not all of a bound pod's devices could be counted")
	}
	a.held.Store(pod.UID, hold{node: pod.Spec.NodeName, info: info, bound: true})
}

// assume counts what a pod is about to be given; nothing stays counted with an
// error.
func (a *deviceCache) assume(uid apitypes.UID, node string, info *types.PodInfo) error {
	a.changing.Lock()
	defer a.changing.Unlock()
	if held, ok := a.hold(uid); ok {
		if held.bound {
			return fmt.Errorf("the pod is already bound to node %s, with devices", held.node)
		}
		a.giveBack(uid, held.node)
	}
	if err := a.host.Take(node, string(uid), info); err != nil {
		return errors.Join(err, a.host.Return(node, string(uid)))
	}
	a.held.Store(uid, hold{node: node, info: info})
	return nil
}

// forget takes back what was assumed, unless the pod turned out to be bound.
func (a *deviceCache) forget(pod *v1.Pod) {
	a.changing.Lock()
	defer a.changing.Unlock()
	if held, ok := a.hold(pod.UID); ok && !held.bound {
		a.giveBack(pod.UID, held.node)
		a.queue.GaveBack(pod.UID, freed(held.node))
	}
}

// giveBack returns what the pod holds. The caller holds changing.
func (a *deviceCache) giveBack(uid apitypes.UID, node string) {
	if err := a.host.Return(node, string(uid)); err != nil {
		a.logger.Error(err, "A plugin failed to count what a pod gave back; it was counted anew from the node's other pods", "podUID", uid, "node", node)
	}
	a.held.Delete(uid)
}

func (a *deviceCache) hold(uid apitypes.UID) (hold, bool) {
	held, ok := a.held.Load(uid)
	if !ok {
		return hold{}, false
	}
	return held.(hold), true
}

func freed(node string) requeue.Event { return requeue.Event{Freed: []string{node}} }

// synced reports whether the device cache has seen all that existed at start.
func (a *deviceCache) synced() bool {
	for _, synced := range a.sources {
		if !synced() {
			return false
		}
	}
	return true
}
