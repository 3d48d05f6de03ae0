package view

import (
	corev1 "k8s.io/api/core/v1"
)

// goneEvents are the reasons of events that say why somebody deleted a pod.
var goneEvents = map[string]bool{"Preempted": true, "SlotAssignedTwice": true, "TaintManagerEviction": true, "Evicted": true, "NodeControllerEviction": true}

// Gone says of a pod that is not there why it was deleted, by the last event that does;
// empty for nothing.
func (v *View) Gone(events []corev1.Event) string {
	for i := len(events) - 1; i >= 0; i-- {
		if e := &events[i]; goneEvents[e.Reason] {
			return "; the last that was said of it is: " + eventSource(e) + ": " + e.Reason + ": " + v.named(e.Message)
		}
	}
	return ""
}
