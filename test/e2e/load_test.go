package e2e

import (
	"context"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"

	"github.com/kubeslot/kubeslot/test/history"
)

// load creates and deletes pods of two priorities that use slots, of which there
// are too few, and watches all that happens to them.
type load struct {
	*rig
	name     string // of the Configuration
	slots    int
	classes  []string
	dir      string // where containers lock the slots that they use
	recorder recorder
	cancel   context.CancelFunc
	workers  sync.WaitGroup
}

// recorder records a history.
type recorder interface {
	Events(context.Context) ([]history.Event, error)
}

// loadWorkers pods at a time want the slots.
const loadWorkers = 8

// startLoad makes two devices of two slots each, and starts the load.
func startLoad(r *rig, name string) *load {
	r.Helper()
	l := &load{rig: r, name: name, slots: 4, dir: r.TempDir(), classes: []string{r.priorityClass(100), r.priorityClass(1000)}}
	l.debugEcho(name, 2, func(c *akriv0.Configuration) {
		c.Spec.DiscoveryHandler.DiscoveryDetails = fmt.Sprintf(
			"descriptions: [%s0, %s1]\nmounts: [{containerPath: /slots, hostPath: %s}]\n", name, name, l.dir)
	}, name+"0", name+"1")
	ctx, cancel := context.WithCancel(r.ctx)
	var err error
	l.recorder, err = history.Record(r.ctx, kube, akri, r.ns)
	r.check(err)
	l.cancel = cancel
	r.Cleanup(l.stop)
	for i := range loadWorkers {
		l.workers.Go(func() {
			for ctx.Err() == nil {
				if err := l.one(ctx, fmt.Sprint("w", i)); err != nil && ctx.Err() == nil {
					r.Errorf("load: %v", err)
					return
				}
			}
		})
	}
	return l
}

// one is the life of one pod: it ends by itself, or is deleted while it runs, or
// at any time before, or preempted. The next one has the same name.
func (l *load) one(ctx context.Context, name string) error {
	p := newPod(name, []string{"", nodeA, nodeB}[rand.Intn(3)], map[string]int64{l.name: 1 + rand.Int63n(2)})
	p.Spec.RestartPolicy = v1.RestartPolicyNever
	p.Spec.PriorityClassName = l.classes[rand.Intn(len(l.classes))]
	lifetime, patient := "1h", true
	switch rand.Intn(3) {
	case 0:
		lifetime = "100ms"
	case 1:
		patient = false
	}
	p.Spec.Containers[0].Args = []string{"hold", "/slots", lifetime}
	pods := kube.CoreV1().Pods(l.ns)
	p, err := pods.Create(ctx, p, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	until := time.Now().Add(time.Duration(rand.Intn(1000)) * time.Millisecond)
	err = l.poll(ctx, func() (bool, error) {
		live, err := pods.Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) { // it was preempted, or its slot was another pod's
			return true, nil
		}
		if err != nil {
			return false, err
		}
		ended := live.Status.Phase == v1.PodSucceeded || live.Status.Phase == v1.PodFailed
		if patient && lifetime == "1h" && live.Status.Phase == v1.PodRunning {
			patient, until = false, time.Now().Add(time.Duration(rand.Intn(2000))*time.Millisecond)
		}
		return ended || live.DeletionTimestamp != nil || !patient && time.Now().After(until), nil
	})
	if err != nil {
		return err
	}
	return l.gone(ctx, p)
}

// gone deletes the pod and waits until it is no more.
func (l *load) gone(ctx context.Context, p *v1.Pod) error {
	pods := kube.CoreV1().Pods(l.ns)
	err := pods.Delete(ctx, p.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &p.UID}})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return l.poll(ctx, func() (bool, error) {
		live, err := pods.Get(ctx, p.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		return err == nil && live.UID != p.UID, err
	})
}

func (l *load) poll(ctx context.Context, ok func() (bool, error)) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if done, err := ok(); done || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (l *load) stop() {
	l.cancel()
	l.workers.Wait()
}

// finish ends the load and checks that no slot was given twice, and that none is
// lost or leaked: after all pods have gone, each slot can be had again. The ledger
// of each scheduler, with all that it has been through, is what the API shows.
func (l *load) finish(rules history.Rules) {
	l.Helper()
	l.settle()
	if report := l.judge(l.recorder, rules); report.Bound < 2*l.slots {
		l.Errorf("only %d pods were bound: that is no load", report.Bound)
	}
}

// settle is finish without what a history says.
func (l *load) settle() {
	l.Helper()
	l.stop()
	l.ledgersAgree(l.name)
	l.check(kube.CoreV1().Pods(l.ns).DeleteCollection(l.ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	l.await("the load's pods to be gone", func() (bool, string) {
		pods, err := kube.CoreV1().Pods(l.ns).List(l.ctx, metav1.ListOptions{})
		return err == nil && len(pods.Items) == 0, fmt.Sprint(err, len(podsOf(pods)))
	})
	l.awaitClaims(l.name, map[string]holding{})
	l.ledgersAgree(l.name)
	for i := range l.slots {
		p := newPod(fmt.Sprint("last-", i), "", map[string]int64{l.name: 1})
		p.Spec.Containers[0].Args = []string{"hold", "/slots", "1h"}
		l.create(p)
	}
	held := map[string]types.UID{}
	for i := range l.slots {
		name := fmt.Sprint("last-", i)
		for _, slot := range l.agree(name, l.name, 1) {
			held[slot] = l.pod(name).UID
		}
	}
	if len(held) != l.slots {
		l.Errorf("in the end %d of %d slots can be had: %v", len(held), l.slots, held)
	}
	l.ledgersAgree(l.name)
	if conflict, err := os.ReadFile(filepath.Join(l.dir, "CONFLICT")); err == nil {
		l.Errorf("containers used a slot at the same time:\n%s", conflict)
	}
}

// judge checks what has been recorded, up to now.
func (r *rig) judge(recorder recorder, rules history.Rules) history.Report {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.ctx, patience)
	defer cancel()
	events, err := recorder.Events(ctx)
	r.check(err)
	report := history.Check(events, rules)
	r.Logf("history of %d events: %d pods bound, %d preempted, %d claims, %d slots bound twice for a while",
		len(events), report.Bound, report.Preempted, report.Claims, report.Doubles)
	for _, v := range report.Violations {
		r.Error(v)
	}
	return report
}

// logWait logs how long a waiting pod took to be bound, and to run, once the pod that
// had its slot before released it.
func (r *rig) logWait(recorder recorder, former, waiter, slot string) {
	r.Helper()
	events, err := recorder.Events(r.ctx)
	r.check(err)
	var released, ended, bound, ran time.Time
	for _, e := range events {
		first := func(at *time.Time, is bool) {
			if is && at.IsZero() {
				*at = e.Seen
			}
		}
		switch p := e.Pod; {
		case p == nil:
			if e.Claim != nil && e.Claim.Name == slot && e.Type == watch.Deleted {
				released = e.Seen
			}
		case p.Name == former:
			first(&ended, e.Type == watch.Deleted || p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed)
		case p.Name == waiter:
			first(&bound, p.Spec.NodeName != "")
			first(&ran, p.Status.Phase == v1.PodRunning)
		}
	}
	after := func(t time.Time) time.Duration { return t.Sub(released).Round(time.Millisecond) }
	r.Logf("pod %s was bound %v and ran %v after its slot was released; its former holder, pod %s, ended %v after that",
		waiter, after(bound), after(ran), former, after(ended))
}
