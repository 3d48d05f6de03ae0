package recovery

import (
	"errors"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
)

// An eviction that fails is tried again, eight times in all.
func TestEvictsAgain(t *testing.T) {
	for failures, want := range map[int]int{0: 1, 3: 4, 100: 8} {
		synctest.Test(t, func(t *testing.T) {
			client, attempts := fake.NewClientset(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "winner", Namespace: "default", UID: "w"}}), 0
			client.PrependReactor("delete", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
				if attempts++; attempts > failures {
					return true, nil, nil
				}
				return true, nil, errors.New("a webhook denied the request")
			})
			evictor := &Evictor{Logger: klog.Background(), Client: client, Recorder: events.NewFakeRecorder(1)}
			evictor.Evict(t.Context(), []*ledger.DoubleAllocation{{Winner: ledger.Pod{Namespace: "default", Name: "winner", UID: "w"}, Losers: []ledger.Pod{{Namespace: "default", Name: "loser", UID: "l"}}}})
			if attempts != want {
				t.Errorf("%d failures: %d attempts, want %d", failures, attempts, want)
			}
		})
	}
}
