package brokers

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeslot/kubeslot/controller/naming"
)

// flapping plays a device whose properties change each second for so long, and returns how many
// brokers it is given, when they are created, and after which the controller is restarted.
func flapping(r *rig, long time.Duration, restart bool, meanwhile func(second int)) (created []time.Duration) {
	r.Helper()
	r.inv.SetConfiguration(configuration(1, onePod))
	began := r.clock.Now()
	for second := 0; r.clock.Since(began) < long; second++ {
		r.properties = map[string]string{"K": fmt.Sprint(second)}
		r.found("a")
		for range 4 { // deletes one, sees it gone, makes the next, sees it there
			if restart {
				r.restart()
			}
			r.writes = nil
			if _, err := r.reconcile(); err != nil {
				r.Fatal(err)
			}
			for _, w := range r.writes {
				if strings.HasPrefix(w, "create Pod ") {
					created = append(created, r.clock.Since(began))
				}
			}
		}
		r.told() // so that there is room for more
		meanwhile(second)
		r.clock.SetTime(r.clock.Now().Add(time.Second))
	}
	return created
}

// A device on the network that changes its properties all the time (a TXT record, say) has no
// more brokers made than one whose broker fails: 12 in 10 minutes.
func TestBrokersOfAFlappingDeviceAreFew(t *testing.T) {
	becomes := map[string]func(r *rig) func(int){
		"Ready at once": func(r *rig) func(int) { return func(int) { r.run(corev1.PodRunning) } },
		"never Ready":   func(*rig) func(int) { return func(int) {} },
		"Ready, or ends well": func(r *rig) func(int) {
			return func(s int) { r.run([]corev1.PodPhase{corev1.PodRunning, corev1.PodSucceeded}[s/7%2]) }
		},
	}
	for what, run := range becomes {
		for _, ahead := range []time.Duration{0, time.Hour, -time.Hour} {
			for _, restart := range []bool{false, true} {
				if restart && ahead != 0 {
					continue // a process that has just begun has no other times
				}
				if testing.Short() && ahead != 0 {
					continue // these take half a minute: make test-all runs them
				}
				t.Run(fmt.Sprintf("%s, API server %s ahead, restarts %v", what, ahead, restart), func(t *testing.T) {
					r := newRig(t, theInstance())
					r.ahead = ahead
					created := flapping(r, 10*time.Minute, restart, run(r))
					if len(created) > 12 || len(created) < 8 {
						t.Errorf("%d pods in 10 minutes, want 8 to 12: %v", len(created), created)
					}
					if strings.HasSuffix(what, "ends well") {
						return // its end is told, too
					}
					if sum := r.sum(); sum.Problem == nil || sum.Problem.Reason != ChangingProperties {
						t.Errorf("says the problem %v, want %s", sum.Problem, ChangingProperties)
					}
				})
			}
		}
	}
}

// When the properties stay, the last are the broker's within the longest delay, and after ten
// quiet minutes the first change counts as the first again.
func TestAfterFlapping(t *testing.T) {
	r := newRig(t, theInstance())
	flapping(r, 20*time.Minute, false, func(int) { r.run(corev1.PodRunning) })
	began := r.clock.Now()
	r.settle()
	if took := r.clock.Since(began); took > maxDelay+time.Minute {
		t.Errorf("the last properties come after %s, want %s", took, maxDelay)
	}
	if sum := r.sum(); sum.Problem != nil || sum.Ready != 1 {
		t.Errorf("%d Ready, problem %v", sum.Ready, sum.Problem)
	}
	r.clock.SetTime(r.clock.Now().Add(runsWell))
	began = r.clock.Now()
	r.properties = map[string]string{"K": "new"}
	r.found("a")
	r.settle()
	if pod := r.pods()[0]; pod.Annotations[naming.Failures] != "1" || r.clock.Since(began) > 10*time.Second {
		t.Errorf("the next change comes after %s, as failure %s", r.clock.Since(began), pod.Annotations[naming.Failures])
	}
}

// The successor counts the replacement also when its predecessor takes long to go, when the
// properties are the former again by then, and when the controller is restarted meanwhile.
func TestReplacementIsCountedWhileAPodGoes(t *testing.T) {
	for _, restart := range []bool{false, true} {
		f := newFacts(t, configuration(1, onePod), "b", brokerPod("b", "Starting", formerProperties, failedBefore(4)))
		p := decide(f)
		if p.show() != "-b/b" || p.due["b"] != 1 { // it has been there for an hour
			t.Fatalf("%s, due %v", p.show(), p.due)
		}
		f.memory, f.instance.Annotations = p.memory, map[string]string{naming.Failures: f.notedNow(p.due)}
		if restart {
			f.memory = memory{}
		}
		f.pods[0] = brokerPod("b", "Starting", failedBefore(4), going)(f)
		if p = decide(f); p.show() != "" {
			t.Fatal(p.show())
		}
		f.memory, f.pods = p.memory, nil
		if p = decide(f); len(p.create) != 1 || failuresBefore(p.create[0]) != 1 {
			t.Errorf("restart %v: %s, failures %v, want 1", restart, p.show(), p.memory.failures)
		}
	}
}
