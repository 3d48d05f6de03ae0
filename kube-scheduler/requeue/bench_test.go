package requeue

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// What a Step costs while many pods wait: after an event that helps none of them, with that known at
// once or found pod by pod; after one that helps all; and when all are to be retried.
func BenchmarkStep(b *testing.B) {
	all := func(*v1.Pod) bool { return true }
	for _, n := range []int{1000, 10_000, 100_000} {
		for _, test := range []struct {
			name     string
			possible func(*v1.Pod) bool
			retry    bool
		}{
			{"nothing is free", nil, false}, {"none fits", func(*v1.Pod) bool { return false }, false},
			{"all fit", all, false}, {"retries", nil, true},
		} {
			b.Run(fmt.Sprintf("%s/pods=%d", test.name, n), func(b *testing.B) {
				r := newRig()
				r.crowd("x", n)
				r.possible["x"] = test.possible
				for b.Loop() {
					_, more := r.Step()
					b.StopTimer()
					r.try(r.activated...)
					r.activated = nil
					switch {
					case more:
					case test.retry:
						r.RetryWaiting(nil, nil)
					default:
						r.Record(Event{Freed: []string{"x"}})
					}
					b.StartTimer()
				}
			})
		}
	}
}

// What it costs that a pod gives back what it had reserved, while many others wait for other things.
func BenchmarkGaveBack(b *testing.B) {
	for _, n := range []int{1000, 100_000} {
		b.Run(fmt.Sprintf("pods=%d", n), func(b *testing.B) {
			r := newRig()
			r.crowd("x", n)
			failed := pod("failed")
			r.await(failed, "y")
			for b.Loop() {
				r.Reserved("failed")
				r.GaveBack("failed", Event{Freed: []string{"y"}})
			}
		})
	}
}
