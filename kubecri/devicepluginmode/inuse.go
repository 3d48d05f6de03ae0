package devicepluginmode

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/klog/v2"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/kubeslot/kubeslot/kubecri/informers"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

const (
	// refreshEvery is how often the runtime and the kubelet are asked what is in use, besides when
	// something happens.
	refreshEvery = 10 * time.Second
	// askTimeout bounds one question to the kubelet, and apiTimeout what is written into claims after it.
	askTimeout, apiTimeout = 10 * time.Second, 10 * time.Second
)

// ask asks the kubelet what is in use, and decides what is released. It is of claims.Kubelet, one at a
// time.
func (p *Plugins) ask(ctx context.Context) (again time.Duration, err error) {
	listed, err := p.readPodResources(ctx)
	if err != nil {
		return 0, err
	}
	p.mu.Lock()
	p.listed = listed
	p.mu.Unlock()
	if !p.synced() {
		return 0, nil
	}
	all := p.holds("")
	now := p.Clock.Now()
	p.asks.since(all, now)
	release, again := decideRelease(all, p.requested(), now)
	freed := p.asks.release(release)
	if err := p.showPods(ctx, all, listed); err != nil { // which nothing depends on: tried again the next time
		klog.FromContext(ctx).V(2).Info("Cannot write which pods have slots", "reason", err)
	}
	// A claim that was met and that the watch never shows is forgotten after a while.
	if _, unshown := p.met.Forgets(); unshown || freed {
		p.resyncs.Send()
	}
	return again, nil
}

// showPods writes into this node's claims which pods the kubelet has given their slots to, once for
// each pod. While two pods have one id, an old one and the next, it leaves what is there.
func (p *Plugins) showPods(ctx context.Context, all []held, listed listing) error {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	wrong := slices.DeleteFunc(all, func(h held) bool {
		pods := listed[h.resource][h.Holder]
		return h.Claim == nil || len(pods) != 1 || h.Claim.Annotations[v1alpha1.PodAnnotation] == pods[0].String()
	})
	errs := make([]error, len(wrong))
	workqueue.ParallelizeUntil(context.WithoutCancel(ctx), writers, len(wrong), func(i int) {
		h := wrong[i]
		errs[i] = p.claims.Annotate(ctx, h.Claim, listed[h.resource][h.Holder][0].String())
	})
	return errors.Join(errs...)
}

// readPodResources asks the kubelet which pods have which ids of ours.
func (p *Plugins) readPodResources(ctx context.Context) (listing, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
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
					all[d.ResourceName] = map[string][]types.NamespacedName{}
				}
				for _, id := range d.DeviceIds {
					who := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
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
		if pod.Spec.NodeName != p.Node || informers.PodEnded(pod) {
			continue
		}
		for name, n := range requests(pod) {
			sum[name] += n
		}
	}
	return sum
}

// requests are the amounts of ours that a pod requests of device plugins.
func requests(pod *corev1.Pod) map[string]int64 {
	amounts := map[string]int64{}
	for name, quantity := range resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}) {
		if strings.HasPrefix(string(name), assignment.ResourcePrefix) && !assignment.ByDRA(pod, "", string(name)) {
			amounts[string(name)] = quantity.Value()
		}
	}
	return amounts
}

// followPods asks for a relist when a pod that had slots is over.
func (p *Plugins) followPods() {
	informers.Handle(p.Pods.Informer(), informers.EachPodOver(func(pod *corev1.Pod) {
		if len(requests(pod)) > 0 {
			p.claims.Resync()
		}
	}))
}
