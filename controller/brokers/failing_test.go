package brokers

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeslot/kubeslot/controller/naming"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// A broker that fails whenever it is started: at most 12 pods in 10 minutes, also when
// other things have its Instance looked at all the time, when its properties change, and
// when the controller is restarted again and again.
func TestFailingBrokersAreFew(t *testing.T) {
	for what, meanwhile := range map[string]func(r *rig, look int){
		"nothing else happens": func(*rig, int) {},
		"looked at each second": func(r *rig, _ int) {
			for range 3 {
				r.reconcile()
			}
		},
		"properties change": func(r *rig, look int) {
			r.properties = map[string]string{"K": strings.Repeat("v", look%7)}
			r.found("a")
		},
		"the controller is restarted": func(r *rig, look int) {
			if look%3 == 0 {
				r.restart()
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			r := newRig(t, theInstance())
			r.inv.SetConfiguration(configuration(1, onePod))
			r.found("a")
			for look := 0; r.clock.Since(start) < 10*time.Minute; look++ {
				meanwhile(r, look)
				result, err := r.reconcile()
				if err != nil {
					t.Fatal(err)
				}
				r.run(corev1.PodFailed)
				wait := min(result.RequeueAfter, 10*time.Second)
				if what == "looked at each second" || wait == 0 {
					wait = time.Second
				}
				r.clock.SetTime(r.clock.Now().Add(wait))
			}
			created := 0
			for _, w := range r.writes {
				if strings.HasPrefix(w, "create Pod ") {
					created++
				}
			}
			if created > 12 || created < 8 {
				t.Errorf("%d pods in 10 minutes, want 8 to 12", created)
			}
		})
	}
}

// What an Instance says of its brokers' failures counts for the spec that it was said of,
// and nothing that somebody writes there does harm.
func TestNotedFailures(t *testing.T) {
	f := newFacts(t, configuration(2, onePod), "a b")
	for text, want := range map[string]int{
		"": 0, "x": 0, `[]`: 0, `{}`: 0, `{"failures":7}`: 0, `{"spec":"other","failures":{"a":3}}`: 0,
		`{"spec":"` + f.spec.hash + `"}`:                                0,
		`{"spec":"` + f.spec.hash + `","failures":{"a":3,"gone":9}}`:    3,
		`{"spec":"` + f.spec.hash + `","failures":{"a":-3}}`:            0,
		`{"spec":"` + f.spec.hash + `","failures":{"a":1000000000000}}`: 0,
	} {
		f.instance.Annotations = map[string]string{naming.Failures: text}
		f.memory = memory{}
		p := decide(f)
		if got := p.memory.failures["a"]; got != want || p.memory.failures["gone"] != 0 {
			t.Errorf("%q: %v, want %d of a", text, p.memory.failures, want)
		}
		for _, pod := range p.create {
			if pod.Labels[naming.TargetNode] == "a" && failuresBefore(pod) != want {
				t.Errorf("%q: the successor counts %d, want %d", text, failuresBefore(pod), want)
			}
		}
		if want > 0 { // b's broker is due: a's count stays until it has a successor
			now := notedFailures(&akriv0.Instance{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{naming.Failures: f.notedNow(map[string]int{"b": 2})}}}, f.spec.hash)
			if len(now) != 2 || now["a"] != want || now["b"] != 2 {
				t.Errorf("noted next: %v", now)
			}
		}
	}
}

// The successor of a broker that ended comes on its node also when that broker is deleted by
// now, so that its failures count; b is the first by rank.
func TestSuccessorOfADeletedBroker(t *testing.T) {
	f := newFacts(t, configuration(1, onePod), "a b")
	f.memory = memory{specHash: f.spec.hash, failures: map[string]int{"a": 2}}
	p := decide(f)
	if len(p.create) != 1 || p.create[0].Labels[naming.TargetNode] != "a" || failuresBefore(p.create[0]) != 2 {
		t.Errorf("%s: want one on a, with two failures before", p.show())
	}
}
