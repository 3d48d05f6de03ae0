package services

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kubeslot/kubeslot/controller/naming"
)

// Types that rig.lists counts.
const listOfServices, listOfPods = "*v1.ServiceList", "*v1.PodList"

// Thousands of events of a Configuration's brokers cost as many looks as there are intervals, the
// first at once; and what the last event says is seen.
func TestEventsOfBrokersCostOneLookInAnInterval(t *testing.T) {
	r := newRig(t, found())
	r.configure("", grpc)
	r.report()
	configuration := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "default", Name: "cam"}}
	const events, perSecond = 10_000, 1_000
	var again time.Time // when the queue has it looked at, if no event comes
	for i := range events {
		if i == events-1 {
			r.pod(corev1.PodRunning)
		}
		result, err := r.ofAll.Reconcile(t.Context(), configuration)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 && r.lists[listOfPods] != 1 {
			t.Errorf("the first event is not answered at once: %v", r.lists)
		}
		if again = r.clock.Now().Add(result.RequeueAfter); i > 0 && result.RequeueAfter > lookInterval {
			t.Fatalf("event %d is answered after %s", i, result.RequeueAfter)
		}
		r.clock.SetTime(r.clock.Now().Add(time.Second / perSecond))
	}
	r.clock.SetTime(again)
	if _, err := r.ofAll.Reconcile(t.Context(), configuration); err != nil || r.services() == "" {
		t.Errorf("the last event is lost: %v, Services %q", err, r.services())
	}
	most := int(events*time.Second/perSecond/lookInterval) + 1
	if r.lists[listOfPods] > most || r.lists[listOfServices] > most+1 { // and the test's own
		t.Errorf("lists %v, want at most %d of each", r.lists, most)
	}
}

// Where no Service is wanted and none is there, brokers are not looked at.
func TestNoServiceIsWanted(t *testing.T) {
	r := newRig(t, found())
	r.configure("", "")
	r.report()
	r.pod(corev1.PodRunning)
	for range 1000 {
		for of, name := range map[*Reconciler]string{r.ofAll: "cam", r.ofInstance: "cam-8120fe"} {
			request := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "default", Name: name}}
			if result, err := of.Reconcile(t.Context(), request); err != nil || result != (reconcile.Result{}) {
				t.Fatal(result, err)
			}
		}
	}
	if r.lists[listOfPods] != 0 || len(r.ofInstance.looked)+len(r.ofAll.looked) != 0 {
		t.Errorf("lists %v; keeps %v and %v", r.lists, r.ofInstance.looked, r.ofAll.looked)
	}
	o, err := r.ofAll.find(t.Context(), &r.ofAll.Config, types.NamespacedName{Namespace: "default", Name: "cam"})
	if err != nil {
		t.Fatal(err)
	}
	left := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "cam-svc",
		Labels:          map[string]string{naming.Controller: naming.ControllerName, naming.Configuration: "cam"},
		OwnerReferences: []metav1.OwnerReference{o.reference}}}
	if err := r.api.Create(t.Context(), left); err != nil {
		t.Fatal(err)
	}
	if wrote := r.settle(); fmt.Sprint(wrote) != "[delete cam-svc]" {
		t.Errorf("a Service that was wanted before: %q", wrote)
	}
}
