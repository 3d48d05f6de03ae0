package agent

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/kubecri/agent/reports"
	v0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// maxWarnings is how many of its warnings a handler has told of one Configuration: a
// handler on the network chooses what it warns of.
const maxWarnings = 16

// recordProblem logs, and records as an Event and into the node's slices, what keeps
// discovery from working: once until it changes, or is over, and not more often than notices are
// given. source is the ID of the source that has the problem, "" when all have it.
func (a *Agent) recordProblem(ctx context.Context, s *session, source, reason string, err error) {
	a.mu.Lock()
	is := s.problems[source]
	known := is.Reason == reason && withoutNumbers(is.Message) == withoutNumbers(err.Error())
	configuration := s.configuration
	if !known {
		s.problems[source] = v1alpha1.Problem{Reason: reason, Message: err.Error()}
		a.announce() // WaitDevice says what it waits for
	}
	a.mu.Unlock()
	if known {
		klog.FromContext(ctx).V(2).Info("Discovery still does not work", "reason", err.Error())
		return
	}
	a.writer.Wake()
	a.notices.add(noticeKind{configuration.Name, source, reason}, func(times int) {
		klog.FromContext(ctx).Error(err, "Discovery does not work", "times", times)
		a.warning(configuration, reason, times, "Node %s: %v", a.config.NodeName, err)
	})
}

// warning records an Event of a notice.
func (a *Agent) warning(c *v0.Configuration, reason string, times int, format string, args ...any) {
	a.config.Recorder.Event(c, corev1.EventTypeWarning, reason, fmt.Sprintf(format, args...)+repeated(times))
}

// withoutNumbers is what two errors have in common that differ in ports or times
// alone.
func withoutNumbers(text string) string {
	return strings.Map(func(r rune) rune {
		if '0' <= r && r <= '9' {
			return -1
		}
		return r
	}, text)
}

// forgetProblem ends the problem of a source once it has run for as long as was waited
// for it, and not before: a handler that fails again and again must not have the slice
// written each time.
func (a *Agent) forgetProblem(running context.Context, s *session, source string, after time.Duration) {
	sleep(running, after)
	a.forgetProblems(s, func(of string, _ v1alpha1.Problem) bool { return of == source && running.Err() == nil })
}

// forgetProblems ends those of the problems.
func (a *Agent) forgetProblems(s *session, those func(source string, p v1alpha1.Problem) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	before := len(s.problems)
	maps.DeleteFunc(s.problems, those)
	if len(s.problems) < before {
		a.writer.Wake()
	}
}

// anyProblem is for forgetProblems: all of them.
func anyProblem(string, v1alpha1.Problem) bool { return true }

// unknownHandler is for forgetProblems: that there is no source.
func unknownHandler(source string, p v1alpha1.Problem) bool {
	return source == "" && p.Reason == reasonUnknownHandler
}

// warn is Request.Warn: each warning is an Event, once.
func (a *Agent) warn(ctx context.Context, s *session, message string) {
	a.mu.Lock()
	known := s.warned[message] || len(s.warned) >= maxWarnings
	if !known {
		s.warned[message] = true
	}
	configuration := s.configuration
	a.mu.Unlock()
	if known {
		return
	}
	klog.FromContext(ctx).Info("Warning of a discovery handler", "message", message)
	a.config.Recorder.Eventf(configuration, corev1.EventTypeWarning, "DiscoveryWarning", "Node %s: %.900s", a.config.NodeName, message)
}

// toWrite are the problems to be written into the node's slices.
func (s *session) toWrite() []v1alpha1.Problem {
	var all []v1alpha1.Problem
	ref := reports.Reference(s.configuration)
	for _, source := range slices.Sorted(maps.Keys(s.problems)) {
		p := s.problems[source]
		p.Configuration = &ref
		all = append(all, p)
	}
	if s.rejected != "" {
		all = append(all, v1alpha1.Problem{Configuration: &ref, Reason: reasonRejected,
			Message: "left out: " + s.rejected})
	}
	if p := s.limitProblem(); p != nil {
		all = append(all, *p)
	}
	return all
}
