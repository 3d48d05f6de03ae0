package configurationresources

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// drain follows all that is in the queue.
func drain(t *testing.T, b *book, queue cache.Queue) {
	t.Helper()
	// It blocks when it is empty.
	last := &akriv0.Instance{ObjectMeta: metav1.ObjectMeta{Name: "last", Namespace: "default"}}
	if err := queue.Delete(last); err != nil {
		t.Fatal(err)
	}
	for {
		deltas, err := queue.Pop(b.followInstances)
		if err != nil {
			t.Fatal(err)
		}
		if deltas.(cache.Deltas)[0].Object == any(last) {
			return
		}
	}
}

// The watch was interrupted, and the API listed anew: what was deleted meanwhile is
// missing from the list, also an Instance that was made again under its name.
func TestInstancesAfterAnInterruption(t *testing.T) {
	r := newRig(t)
	queue := r.book.instanceQueue()
	if err := queue.Replace([]any{instance("cam-1", "a"), instance("cam-2", "b"), instance("cam-3", "c")}, "1"); err != nil {
		t.Fatal(err)
	}
	drain(t, r.book, queue)
	if got := r.book.ledger.Free("cam"); got != 3 || !queue.HasSynced() {
		t.Fatalf("%d slots are free of three Instances, synced: %v", got, queue.HasSynced())
	}
	r.schedule(t, pod("p", "3"), "node-a")

	again, larger := instance("cam-2", "again"), instance("cam-3", "c")
	again.Spec.Capacity, larger.Spec.Capacity = 2, 3
	if err := queue.Replace([]any{again, larger}, "2"); err != nil {
		t.Fatal(err)
	}
	drain(t, r.book, queue)
	if r.book.instance("cam-1") != nil {
		t.Error("an Instance that was deleted during the interruption gives slots")
	}
	if got := r.book.ledger.Free("cam-2"); got != 1 {
		t.Errorf("%d slots of the new Instance are free, want 1 of 2: p has one of that name", got)
	}
	if got := r.book.instance("cam-2").UID; got != "uid-again" {
		t.Errorf("UID is %s", got)
	}
	if got := r.book.ledger.Free("cam-3"); got != 2 {
		t.Errorf("%d slots are free, want 2 of 3", got)
	}

	if err := queue.Delete(larger); err != nil {
		t.Fatal(err)
	}
	drain(t, r.book, queue)
	if r.book.instance("cam-3") != nil {
		t.Error("a deleted Instance gives slots")
	}
}
