package devicepluginmode

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/klog/v2"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/kubeslot/kubeslot/kubecri/claims"
	"github.com/kubeslot/kubeslot/kubecri/crilist"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/slot"
)

const (
	// refreshEvery is how often the kubelet and the runtime are asked what is in use,
	// besides when something ends.
	refreshEvery = 10 * time.Second
	// refreshGap is at least between two refreshes: what ends together is looked at once.
	refreshGap = 50 * time.Millisecond
	// askTimeout bounds one question to them, and apiTimeout one to the API server.
	askTimeout, apiTimeout = 10 * time.Second, 10 * time.Second
	// runtimeRetry is the first wait after the runtime or the kubelet did not answer; the
	// longest is refreshEvery.
	runtimeRetry = time.Second
	// remakeInterval is at least between two times that a claim is made again. Somebody
	// may delete it each time: the controller deletes claims that do not count.
	remakeInterval = 10 * time.Second
)

// afterEnd is when the kubelet is asked again after a container has ended: it may run it
// again, and takes a while to see that its pod is over.
var afterEnd = []time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 300 * time.Millisecond, 400 * time.Millisecond, time.Second}

// relist has what is in use listed soon.
func (p *Plugins) relist() {
	select {
	case p.relists <- struct{}{}:
	default: // asked for already
	}
}

// refreshLoop asks what is in use periodically, and several times after each relist that is asked for.
func (p *Plugins) refreshLoop(ctx context.Context) {
	logger := klog.FromContext(ctx)
	ticker := time.NewTicker(refreshEvery)
	defer ticker.Stop()
	failing, retry := false, runtimeRetry
	for step := 0; ; step++ {
		err := p.refresh(ctx)
		if err != nil && !failing && ctx.Err() == nil { // once an outage
			logger.Error(err, "Cannot tell which slots are in use, or not release them; trying again", "longestWait", refreshEvery)
		}
		if failing = err != nil; !failing {
			retry = runtimeRetry
		}
		var next <-chan time.Time
		switch again := time.Duration(p.recheck.Load()); {
		case failing:
			next = time.After(retry)
			retry = min(2*retry, refreshEvery)
		case step < len(afterEnd):
			next = time.After(afterEnd[step])
		case again > 0:
			next = time.After(again)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(refreshGap):
		}
		select {
		case <-ctx.Done():
			return
		case <-p.relists:
			step = -1
		case <-ticker.C:
		case <-next:
		}
	}
}

// refresh asks the kubelet and the runtime what is in use, releases what is not, and
// claims again what is in use and not claimed. It releases nothing unless both answer.
func (p *Plugins) refresh(ctx context.Context) error {
	if err := p.refreshing.lock(ctx); err != nil {
		return fmt.Errorf("wait for the release of slots: %w", err)
	}
	defer p.refreshing.unlock()
	listed, err := p.ask(ctx)
	if err != nil {
		return err
	}
	all := p.account.holds(listed)
	decided, recheck := decideRelease(all, p.requested(), p.now())
	p.recheck.Store(int64(recheck))
	going, end := p.account.release(decided)
	defer end()
	errs, began := make([]error, len(going)), time.Now()
	writing, cancelWrites := context.WithTimeout(ctx, apiTimeout)
	defer cancelWrites()
	workqueue.ParallelizeUntil(context.WithoutCancel(ctx), writers, len(going), func(i int) {
		h := going[i]
		if errs[i] = p.giveBack(writing, h.slot); errs[i] == nil {
			klog.FromContext(ctx).Info("Released slot", "slot", h.slot, "resource", h.resource, "device", h.claim.holder)
		}
	})
	end()
	p.traceReleases(ctx, began, going, errors.Join(errs...))
	for _, h := range going {
		configuration, _ := slot.SplitInstance(h.slot.Instance)
		p.slotsChanged(configuration, h.slot.Instance)
	}
	if len(going) > 0 {
		p.resync() // an Instance that is gone goes with its last slot
	}
	if err := p.showPods(writing, listed); err != nil { // which nothing depends on: tried again with the next refresh
		klog.FromContext(ctx).V(2).Info("Cannot write which pods have slots", "reason", err)
	}
	return errors.Join(errors.Join(errs...), p.claimAgain(writing))
}

// traceReleases makes a span of the slots that were released, or could not be.
func (p *Plugins) traceReleases(ctx context.Context, began time.Time, going []held, err error) {
	if len(going) == 0 {
		return
	}
	span := p.Tracer.Began(ctx, "ReleaseClaims", began)
	if span.Recorded() {
		names := make([]string, 0, len(going))
		for _, h := range going {
			names = append(names, h.slot.String())
		}
		span.Slots(names)
	}
	span.End(err)
}

// ask asks the runtime and the kubelet what is in use.
func (p *Plugins) ask(ctx context.Context) (listed listing, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if err = p.readContainers(ctx); err == nil {
		listed, err = p.readPodResources(ctx)
	}
	p.Metrics.Resynced(err)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.askError = err; err == nil {
		p.listed = listed
	}
	return listed, err
}

// AskError returns why the runtime or the kubelet did not say what is in use when last asked; nil when
// they did, or have not been asked yet.
func (p *Plugins) AskError() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.askError
}

// readContainers asks the runtime which containers use slots.
func (p *Plugins) readContainers(ctx context.Context) error {
	listed, err := crilist.List(ctx, p.Runtime)
	if err != nil {
		return fmt.Errorf("ask the runtime for its containers: %w", err)
	}
	used, ids := usedBy(listed)
	p.mu.Lock()
	p.containers = ids
	p.mu.Unlock()
	if p.account.setUsed(used) {
		p.resync()
	}
	p.knownOnce.Do(func() { close(p.known) })
	return nil
}

// usedBy returns the slots of containers that can run or run again, and the ids of these
// containers and their sandboxes.
func usedBy(listed crilist.Listing) (map[slot.Name]claims.Use, map[string]bool) {
	used, ids := map[slot.Name]claims.Use{}, map[string]bool{}
	for _, c := range listed.Containers {
		if !listed.Usable(c) {
			continue
		}
		slots, _ := claims.Used(c.Annotations)
		for name, u := range slots {
			used[name] = u
			ids[c.Id], ids[c.PodSandboxId] = true, true
		}
	}
	return used, ids
}

// readPodResources asks the kubelet which pods have which ids of ours.
func (p *Plugins) readPodResources(ctx context.Context) (listing, error) {
	response, err := p.PodResources.List(ctx, &podresourcesapi.ListPodResourcesRequest{})
	if err != nil {
		return nil, fmt.Errorf("ask the kubelet's pod-resources which devices pods have: %w", err)
	}
	all := listing{}
	for _, pod := range response.PodResources {
		for _, c := range pod.Containers {
			for _, d := range c.Devices {
				if !strings.HasPrefix(d.ResourceName, assignment.ResourcePrefix) {
					continue
				}
				if all[d.ResourceName] == nil {
					all[d.ResourceName] = map[string][]podName{}
				}
				for _, id := range d.DeviceIds {
					who := podName{pod.Namespace, pod.Name}
					if !slices.Contains(all[d.ResourceName][id], who) {
						all[d.ResourceName][id] = append(all[d.ResourceName][id], who)
					}
				}
			}
		}
	}
	return all, nil
}

// requested sums what pods of this node request that have not ended, as the kubelet
// counts it.
func (p *Plugins) requested() map[string]int64 {
	pods, _ := p.Pods.Lister().List(labels.Everything()) // from memory
	sum := map[string]int64{}
	for _, pod := range pods {
		if pod.Spec.NodeName != p.Node || ended(pod) {
			continue
		}
		for name, n := range requests(pod) {
			sum[name] += n
		}
	}
	return sum
}

// requests are the amounts of ours that a pod requests.
func requests(pod *corev1.Pod) map[string]int64 {
	amounts := map[string]int64{}
	for name, quantity := range resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}) {
		if strings.HasPrefix(string(name), assignment.ResourcePrefix) {
			amounts[string(name)] = quantity.Value()
		}
	}
	return amounts
}

func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// releasable reports whether this node holds slots of the Configuration that nobody is
// known to use, or is about to release some.
func (p *Plugins) releasable(configuration string) bool {
	p.mu.Lock()
	listed := p.listed
	p.mu.Unlock()
	for _, h := range p.account.holds(listed) {
		if c, _ := slot.SplitInstance(h.slot.Instance); c == configuration && !h.inUse {
			return true
		}
	}
	return p.account.isReleasing(configuration)
}

// claimAgain makes the claims of slots that containers use and that somebody has deleted.
func (p *Plugins) claimAgain(ctx context.Context) error {
	free, lost := p.account.unclaimed()
	maps.DeleteFunc(p.lost, func(name slot.Name, _ claim) bool { _, still := lost[name]; return !still })
	for name, by := range lost {
		if p.lost[name] == by {
			continue
		}
		p.lost[name] = by
		if by.node != p.Node && p.onlyHere(name.Instance) {
			klog.FromContext(ctx).Error(nil, "Another node claims a slot of a device that this node alone has; the claim is not believed", "slot", name, "claimedBy", by)
			p.RecordEvents(name.Instance, "ClaimNotBelieved", fmt.Sprintf("Slot %s, which a container uses, is also %s. "+
				"That node cannot reach the device, and the controller deletes the claim: find out who has the credential of kubecri there.", name, by))
			continue
		}
		p.Metrics.SlotLost()
		klog.FromContext(ctx).Error(nil, "A container uses a slot that another has claimed", "slot", name, "claimedBy", by)
		p.RecordEvents(name.Instance, "SlotLost", fmt.Sprintf("Slot %s, which a container uses, is now %s. Both use the device at once: delete one of the pods.", name, by))
	}
	now := p.now()
	maps.DeleteFunc(p.remade, func(_ slot.Name, at time.Time) bool { return now.Sub(at) >= remakeInterval })
	if len(free) == 0 {
		return nil
	}
	owner, err := p.owner()
	if err != nil {
		return err
	}
	var errs []error
	for name, u := range free {
		if _, recently := p.remade[name]; recently {
			continue
		}
		p.remade[name] = now
		made, err := p.create(ctx, name, v1alpha1.SlotClaimSpec{NodeName: p.Node, Level: u.Level, Holder: u.Holder,
			MadeAgain: true}, owner)
		if made {
			klog.FromContext(ctx).Info("Claimed a slot again, whose container runs", "slot", name, "device", u.Holder)
		}
		if err != nil && !errors.As(err, &conflict{}) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// RecordEvents writes an Event to each pod that has a slot of the Instance here. It does not block.
func (p *Plugins) RecordEvents(instance, reason, message string) {
	p.mu.Lock()
	listed := p.listed
	p.mu.Unlock()
	recorded := map[podName]bool{}
	for _, h := range p.account.holds(listed) {
		if h.slot.Instance != instance {
			continue
		}
		for _, who := range listed[h.resource][h.claim.holder] {
			if recorded[who] {
				continue
			}
			recorded[who] = true
			if pod, err := p.Pods.Lister().Pods(who.namespace).Get(who.name); err == nil {
				p.Events.Event(&corev1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
					corev1.EventTypeWarning, reason, message)
			}
		}
	}
}

// followPods asks for a relist when a pod that had slots is over.
func (p *Plugins) followPods() error {
	over := func(obj any) {
		if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = last.Obj
		}
		if pod, ok := obj.(*corev1.Pod); ok && len(requests(pod)) > 0 {
			p.relist()
		}
	}
	_, err := p.Pods.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(_, obj any) {
			if pod, ok := obj.(*corev1.Pod); ok && ended(pod) {
				over(pod)
			}
		},
		DeleteFunc: over,
	})
	return err
}
