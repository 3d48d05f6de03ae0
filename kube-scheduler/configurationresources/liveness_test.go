package configurationresources

import (
	"errors"
	"fmt"
	"math/rand"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/kube-scheduler/slotrequest"
	"github.com/kubeslot/kubeslot/test/await"
	"github.com/kubeslot/kubeslot/types/assignment"
	"github.com/kubeslot/kubeslot/types/slot"
)

// TestNoPodWaitsThatCouldRun lets random pods come and go, of several priorities,
// and devices change, in upstream's scheduler with our plugin. Whenever things come
// to rest, no pod waits that could run, be it by preemption, and no slot is held
// twice or by nobody.
func TestNoPodWaitsThatCouldRun(t *testing.T) {
	seed := time.Now().UnixNano()
	if given := os.Getenv("SEED"); given != "" {
		seed = must(strconv.ParseInt(given, 10, 64))
	}
	t.Logf("SEED=%d", seed)
	w := newCluster(t, rand.New(rand.NewSource(seed)))
	const rounds, atMost = 25, 500
	for round := 0; round < rounds || (w.bound == 0 || w.evicted == 0) && round < atMost; round++ {
		for range 1 + w.rand.Intn(8) {
			w.step()
		}
		await.That(t, fmt.Sprint("the end of round ", round), func() (bool, string) {
			why := w.unsettled()
			if why != "" {
				w.nodesWork()
			}
			return why == "", why
		})
	}
	if w.bound == 0 || w.evicted == 0 {
		t.Errorf("%d pods were bound and %d evicted: that tests little", w.bound, w.evicted)
	}
}

// fakeCluster is nodes around the scheduler: they claim the slots of bound pods, let
// deleted pods end, and release their claims.
type fakeCluster struct {
	*realScheduler
	rand           *rand.Rand
	devices        map[string]*fakeDevice
	next           int
	bound, evicted int
}

func newCluster(t *testing.T, r *rand.Rand) *fakeCluster {
	firstBatch := 1 + r.Intn(3) // so that a few pods make several batches
	w := &fakeCluster{rand: r, devices: map[string]*fakeDevice{}}
	w.realScheduler = newRealScheduler(t, func(p *Plugin) fwk.Plugin { p.cache.Queue.FirstBatch = firstBatch; return p },
		advertising("node-a", "1000"), advertising("node-b", "1000"))
	// A bound pod ends when its node has seen to it, in nodesWork.
	w.client.PrependReactor("delete", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		stored, err := w.client.Tracker().Get(podsResource, a.GetNamespace(), a.(clienttesting.DeleteAction).GetName())
		if err != nil {
			return true, nil, err
		}
		p := stored.(*v1.Pod)
		if p.Spec.NodeName == "" {
			return false, nil, nil
		}
		return true, nil, w.client.Tracker().Update(podsResource, ending(p), p.Namespace)
	})
	w.cache.SetConfiguration(cameras(2))
	for i := range 3 {
		name := fmt.Sprint("cam-00000", i)
		w.devices[name] = &fakeDevice{nodes: []string{"node-a", "node-b"}}
		w.show(name)
	}
	return w
}

// fakeDevice is who reaches a device, and who has claimed its slots.
type fakeDevice struct {
	nodes  []string
	claims map[string]string // as in deviceUsage
}

func (w *fakeCluster) show(name string) {
	d := w.devices[name]
	device(w.cache, name, d.claims, d.nodes...)
}

func (w *fakeCluster) pods() []*v1.Pod {
	list := must(w.client.Tracker().List(podsResource, v1.SchemeGroupVersion.WithKind("Pod"), "default")).(*v1.PodList)
	var pods []*v1.Pod
	for i := range list.Items {
		pods = append(pods, &list.Items[i])
	}
	return pods
}

// step is something that a user or a device does.
func (w *fakeCluster) step() {
	pods := w.pods()
	switch n := w.rand.Intn(10); {
	case n < 6 && len(pods) < 12:
		w.next++
		p := withPriority(pod(fmt.Sprint("p", w.next), fmt.Sprint(1+w.rand.Intn(2))), int32(w.rand.Intn(3)))
		if n < 3 {
			p.Spec.NodeSelector = map[string]string{v1.LabelHostname: []string{"node-a", "node-b"}[w.rand.Intn(2)]}
		}
		check(w.client.Tracker().Add(p))
	case n < 8 && len(pods) > 0:
		p := pods[w.rand.Intn(len(pods))]
		check(w.client.CoreV1().Pods("default").Delete(w.Context(), p.Name, metav1.DeleteOptions{}))
	case n == 8:
		if w.rand.Intn(3) == 0 {
			w.cache.SetConfiguration(cameras(1 + w.rand.Intn(3)))
			return
		}
		name := fmt.Sprint("cam-00000", w.rand.Intn(3))
		w.devices[name].nodes = [][]string{{"node-a"}, {"node-b"}, {"node-a", "node-b"}, {"node-a", "node-b"}}[w.rand.Intn(4)]
		w.show(name)
	default:
		w.nodesWork()
	}
}

// nodesWork does what nodes do, some of it: claims follow pods, deleted pods end.
func (w *fakeCluster) nodesWork() {
	claims := map[string]map[string]string{}
	for _, p := range w.pods() {
		if p.Spec.NodeName == "" {
			continue
		}
		if p.DeletionTimestamp != nil && w.rand.Intn(3) == 0 {
			w.delete(p.Name)
			continue
		}
		for _, g := range must(assignment.Held(p))["main"] {
			if claims[g.Slot.Instance] == nil {
				claims[g.Slot.Instance] = map[string]string{}
			}
			claims[g.Slot.Instance][g.Slot.String()] = slot.Usage{Node: p.Spec.NodeName, Holder: string(p.UID)}.String()
		}
	}
	for name, d := range w.devices {
		if w.rand.Intn(2) == 0 {
			d.claims = claims[name]
			w.show(name)
		}
	}
}

// unsettled says what is not as it should be at rest, "" when all is.
func (w *fakeCluster) unsettled() (why string) {
	pods := w.pods()
	w.cache.Read(func(l *ledger.Ledger) { why = w.unsettledIn(l, pods) })
	return why
}

func (w *fakeCluster) unsettledIn(l *ledger.Ledger, pods []*v1.Pod) string {
	var why []error
	held := map[slot.Name]string{}
	uids := map[string]bool{}
	for _, p := range pods {
		uids[string(p.UID)] = true
		if p.DeletionTimestamp != nil {
			why = append(why, fmt.Errorf("pod %s is being deleted", p.Name))
			continue
		}
		if p.Spec.NodeName == "" {
			why = append(why, w.couldRun(l, p))
			continue
		}
		a := must(assignment.Held(p))
		for _, g := range a["main"] {
			if other := held[g.Slot]; other != "" {
				w.Fatalf("slot %s is held by %s and %s", g.Slot, other, p.Name)
			}
			held[g.Slot] = p.Name
		}
		if got, want := len(l.Holds(string(p.UID))), len(a["main"]); got != want {
			why = append(why, fmt.Errorf("pod %s holds %d slots, and has %d", p.Name, got, want))
		}
	}
	for _, d := range w.devices {
		for name, usage := range d.claims {
			if s, err := slot.Parse(name); err != nil || held[s] == "" {
				why = append(why, fmt.Errorf("slot %s is claimed as %q", name, usage))
			}
		}
	}
	w.bound += len(held)
	for _, a := range w.client.Actions() {
		if patch, ok := a.(clienttesting.PatchAction); ok && strings.Contains(string(patch.GetPatch()), v1.PodReasonPreemptionByScheduler) {
			w.evicted++
		}
	}
	if err := errors.Join(why...); err != nil {
		return err.Error()
	}
	return ""
}

// couldRun says how the pod could run, if it could.
func (w *fakeCluster) couldRun(l *ledger.Ledger, p *v1.Pod) error {
	req := must(slotrequest.Of(p))
	for _, node := range []string{"node-a", "node-b"} {
		if selected := p.Spec.NodeSelector[v1.LabelHostname]; selected != "" && selected != node {
			continue
		}
		if a, shortfall := l.Draft(ledger.Spread, req.Pod).Fit(node, req); shortfall == nil {
			return fmt.Errorf("pod %s waits and could run on %s with %v", p.Name, node, a)
		}
		var lower []ledger.Victim
		for _, v := range l.PotentialVictims(req).On(node) {
			if v.Priority < req.Priority {
				lower = append(lower, v)
			}
		}
		if len(lower) == 0 {
			continue
		}
		if found := l.Preempt(ledger.Spread, node, req, lower); found != nil {
			return fmt.Errorf("pod %s of priority %d waits and could preempt %v on %s", p.Name, req.Priority, found.Victims, node)
		}
	}
	return nil
}
