package recovery

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2/ktesting"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/types/slot"
)

// rig has pods that were bound with one slot, in order of time, and an Evictor for them.
// The ledger sees a pod gone when it is deleted.
type rig struct {
	sync.Mutex
	evictor  *Evictor
	ledger   *ledger.Ledger
	client   *fake.Clientset
	recorder *events.FakeRecorder
	deny     bool // deletions
	attempts int
	deleted  []string
}

func newRig(t *testing.T, names ...string) *rig {
	logger, _ := ktesting.NewTestContext(t)
	r := &rig{ledger: ledger.New(), client: fake.NewClientset(), recorder: events.NewFakeRecorder(10)}
	for i, name := range names {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name)}}
		_ = r.client.Tracker().Add(pod)
		a := ledger.Assignment{"main": {{Resource: "cam", Slot: slot.Name{Instance: "cam-000001"}}}}
		r.ledger.Observe(ledger.Pod{Namespace: "default", Name: name, UID: name, Bound: int64(i)}, "node", a)
	}
	r.client.PrependReactor("delete", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		r.Lock()
		defer r.Unlock()
		if r.attempts++; r.deny {
			return true, nil, errors.New("a webhook denied the request")
		}
		name := a.(clienttesting.DeleteAction).GetName()
		r.deleted = append(r.deleted, name)
		r.ledger.Remove(name)
		return false, nil, nil
	})
	r.evictor = &Evictor{Logger: logger, Client: r.client, Recorder: r.recorder,
		DoubleAllocations: func() (all []*ledger.DoubleAllocation) {
			r.change(func() { all = r.ledger.DoubleAllocations() })
			return all
		}}
	return r
}

// change uses the rig while the Evictor does not.
func (r *rig) change(f func()) {
	r.Lock()
	defer r.Unlock()
	f()
}

// update changes a pod in the API alone: the ledger hears of it later.
func (r *rig) update(name string, change func(*v1.Pod)) {
	pods := r.client.CoreV1().Pods("default")
	pod, _ := pods.Get(context.Background(), name, metav1.GetOptions{})
	change(pod)
	_, _ = pods.Update(context.Background(), pod, metav1.UpdateOptions{})
}

func terminating(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Now()} }

func wantDeleted(t *testing.T, what string, r *rig, want ...string) {
	t.Helper()
	synctest.Wait()
	if !slices.Equal(r.deleted, want) {
		t.Errorf("%s: deleted %v, want %v", what, r.deleted, want)
	}
	if events := len(r.recorder.Events); events != len(want) {
		t.Errorf("%s: %d events, want one for each of %v", what, events, want)
	}
}

// An eviction that fails is tried again for as long as it fails, once a minute in the end.
func TestEvictsWhenTheAPIHasFailedForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "winner", "loser")
		r.deny = true
		go r.evictor.Run(t.Context())
		time.Sleep(time.Minute)
		wantDeleted(t, "after a minute of failures", r)
		if r.attempts < 5 || r.attempts > 10 {
			t.Errorf("%d attempts in the first minute, want 5 to 10", r.attempts)
		}
		r.change(func() { r.attempts = 0 })
		time.Sleep(time.Hour)
		if synctest.Wait(); r.attempts < 55 || r.attempts > 61 {
			t.Errorf("%d attempts in an hour, want one a minute", r.attempts)
		}
		r.change(func() { r.deny = false })
		time.Sleep(maxRetry + period)
		wantDeleted(t, "the API answers again", r, "loser")
	})
}

// Of three pods with one slot, the winner is deleted before the others are: one of them stays.
func TestWinnerOfThreeIsDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "winner", "second", "third")
		r.deny = true
		go r.evictor.Run(t.Context())
		time.Sleep(time.Minute)
		synctest.Wait()
		r.update("winner", terminating)
		r.change(func() { r.deny = false })
		time.Sleep(time.Hour)
		wantDeleted(t, "the ledger has not heard of it", r)
		r.change(func() { r.ledger.SetTerminating("winner") })
		time.Sleep(maxRetry + period)
		wantDeleted(t, "the ledger has heard of it", r, "third")
		r.change(func() { r.ledger.Remove("winner") })
		time.Sleep(time.Hour)
		wantDeleted(t, "the winner is gone", r, "third")
	})
}

// The pod that would keep the slot, or the one that would not, is going itself, or is another pod
// by now: nobody need go. The API is asked, for this scheduler may have stood still.
func TestPodsThatGoByThemselves(t *testing.T) {
	for name, change := range map[string]func(*v1.Pod){
		"terminating": terminating,
		"completed":   func(p *v1.Pod) { p.Status.Phase = v1.PodSucceeded },
		"failed":      func(p *v1.Pod) { p.Status.Phase = v1.PodFailed },
		"re-created":  func(p *v1.Pod) { p.UID = "another" },
	} {
		for _, of := range []string{"winner", "loser"} {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, "winner", "loser")
				r.update(of, change)
				go r.evictor.Run(t.Context())
				time.Sleep(time.Minute)
				wantDeleted(t, of+" is "+name, r)
			})
		}
	}
}
