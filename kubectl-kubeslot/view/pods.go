package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Pod returns what there is to say of the pod; false when it is not among the objects.
// The events, if any, are those of the pod.
func (v *View) Pod(namespace, name string, events ...corev1.Event) (Pod, bool) {
	pod := v.podsByName()[namespace+"/"+name]
	if pod == nil {
		return Pod{}, false
	}
	p := v.podRow(pod, v.slots().ofPod[string(pod.UID)])
	p.Devices = pluginDevices(pod)
	events = slices.DeleteFunc(slices.Clone(events), func(e corev1.Event) bool {
		return e.InvolvedObject.UID != "" && e.InvolvedObject.UID != pod.UID // of an earlier pod of its name
	})
	v.explain(pod, &p, events)
	p.Says = v.says(pod, events)
	return p, true
}

// Pods returns a row for each pod that asks for devices or has some, by namespace and
// name, and for each workload whose pods are refused. Its waits are those that Pod says without events.
func (v *View) Pods() []Pod {
	held := v.slots().ofPod
	var rows []Pod
	for i := range v.objects.Pods {
		pod := &v.objects.Pods[i]
		mine := held[string(pod.UID)]
		asks := len(requests(pod)) > 0 || len(v.podClaims(pod)) > 0
		if len(mine) == 0 && (!asks || ended(pod) && pod.Status.Phase != corev1.PodFailed) {
			continue
		}
		p := v.podRow(pod, mine)
		v.explain(pod, &p, nil)
		rows = append(rows, p)
	}
	rows = append(rows, v.refusedRows()...)
	slices.SortFunc(rows, func(a, b Pod) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return rows
}

// explain says why the pod does not run, or not as it should; the events are those of the pod.
func (v *View) explain(pod *corev1.Pod, p *Pod, events []corev1.Event) {
	switch p.State {
	case Gated, Pending, Preempting:
		v.unscheduled(pod, p)
	case Starting, Running, Failed:
		v.bound(pod, p, events)
	}
}

// says collects what the scheduler says of a pod without a node, the kubelet of
// containers that do not start, and warnings in events.
func (v *View) says(pod *corev1.Pod, events []corev1.Event) []string {
	var all []string
	add := func(format string, args ...any) {
		if text := v.named(fmt.Sprintf(format, args...)); !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status != corev1.ConditionTrue && c.Message != "" {
			add("the scheduler: %s", c.Message)
		}
		if c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue {
			add("it is made to go: %s: %s", c.Reason, c.Message)
		}
	}
	for _, s := range waiting(pod) {
		if s.State.Waiting.Message != "" {
			add("the kubelet, of container %s: %s: %s", s.Name, s.State.Waiting.Reason, s.State.Waiting.Message)
		}
	}
	if pod.Status.Phase == corev1.PodFailed && pod.Status.Message != "" {
		add("%s: %s", pod.Status.Reason, pod.Status.Message)
	}
	state, _ := stateOf(pod)
	runs := state == Running // then what is long past does not matter
	for _, e := range events {
		if e.Type == corev1.EventTypeWarning && !besides[e.Reason] && (!runs || ourEvents[e.Reason]) && !strings.Contains(strings.Join(all, "\n"), e.Message) {
			add("%s: %s: %s", eventSource(&e), e.Reason, e.Message)
		}
	}
	return all
}

// besides are the reasons of warnings that keep no pod from running, or that its conditions
// and containers say better.
var besides = map[string]bool{"FailedScheduling": true, "MissingClusterDNS": true, "DNSConfigForming": true, "BackOff": true}

// ourEvents are the reasons of Kubeslot's own warnings about pods that run.
var ourEvents = map[string]bool{"SlotLost": true, "StartedWithoutDevices": true, "DeviceGone": true,
	"DeviceChanged": true, "DeviceLost": true, "SlotAssignedTwice": true}

func eventSource(e *corev1.Event) string {
	return cmp.Or(e.ReportingController, e.Source.Component, "an event")
}

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
