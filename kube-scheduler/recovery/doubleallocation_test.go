package recovery

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
)

var winner = &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "winner", Namespace: "default", UID: "w"}}

// evict has the loser of a double allocation evicted, where the first attempts fail, and returns how
// many attempts there were. The API has the winner as it is by now, nil for a pod that is gone.
func evict(t *testing.T, winner *v1.Pod, failures int) (attempts int) {
	client := fake.NewClientset()
	if winner != nil {
		client = fake.NewClientset(winner)
	}
	client.PrependReactor("delete", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		if attempts++; attempts > failures {
			return true, nil, nil
		}
		return true, nil, errors.New("a webhook denied the request")
	})
	evictor := &Evictor{Logger: klog.Background(), Client: client, Recorder: events.NewFakeRecorder(1)}
	evictor.Evict(t.Context(), []*ledger.DoubleAllocation{{
		Winner: ledger.Pod{Namespace: "default", Name: "winner", UID: "w"},
		Losers: []ledger.Pod{{Namespace: "default", Name: "loser", UID: "l"}},
	}})
	return attempts
}

// An eviction that fails is tried again, eight times in all.
func TestEvictsAgain(t *testing.T) {
	for failures, want := range map[int]int{0: 1, 3: 4, 100: 8} {
		synctest.Test(t, func(t *testing.T) {
			if attempts := evict(t, winner, failures); attempts != want {
				t.Errorf("%d failures: %d attempts, want %d", failures, attempts, want)
			}
		})
	}
}

// Who would keep the slot is going itself, or is another pod by now: the other
// need not go. The API is asked, for this scheduler may have stood still.
func TestWinnerThatGoes(t *testing.T) {
	if evict(t, nil, 0) != 0 {
		t.Error("gone: the loser is evicted")
	}
	for name, change := range map[string]func(*v1.Pod){
		"terminating": func(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Now()} },
		"completed":   func(p *v1.Pod) { p.Status.Phase = v1.PodSucceeded },
		"failed":      func(p *v1.Pod) { p.Status.Phase = v1.PodFailed },
		"re-created":  func(p *v1.Pod) { p.UID = "another" },
	} {
		live := winner.DeepCopy()
		change(live)
		if evict(t, live, 0) != 0 {
			t.Errorf("%s: the loser is evicted", name)
		}
	}
}
