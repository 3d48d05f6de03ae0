package agent

import (
	"context"
	"maps"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/kubecri/agent/reports"
	v0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// session is one Configuration under discovery. Its fields are guarded by
// registry.mu; maps are replaced, never changed.
type session struct {
	stop     context.CancelFunc // never changes
	selected bool               // spec.discovery, if set, selects this node; never changes
	reach    *reach             // set when spec.discovery is, and selects this node; never changes
	// configuration is the newest version seen.
	configuration *v0.Configuration
	// reports are what the sources have said, and standing is what these came to when
	// somebody looked last: see settle.
	reports  reports.Reports
	standing reports.Standing
	// rejected says which devices were left out, as last recorded.
	rejected string
	// beyond is how many devices were left out because of spec.maxDevices.
	beyond int
	// problems keep discovery from working, as last recorded: by the ID of the source that
	// has it, "" for one of all.
	problems map[string]v1alpha1.Problem
	// warned are what the handler has warned of.
	warned map[string]bool
}

// startSession runs the Configuration's handler until stopped, if this node is selected: at all times,
// or with spec.discovery while this node is one of those that discover.
func (a *Agent) startSession(ctx context.Context, c *v0.Configuration, selected bool) *session {
	logger := klog.FromContext(ctx).WithValues(
		"configuration", klog.KObj(c), "handler", c.Spec.DiscoveryHandler.Name)
	ctx, stop := context.WithCancel(klog.NewContext(ctx, logger))
	now := time.Now()
	s := &session{configuration: c, stop: stop, selected: selected,
		reports:  reports.New(a.config.Grace, now, a.registered()),
		problems: map[string]v1alpha1.Problem{}, warned: map[string]bool{}}
	switch {
	case c.Spec.Discovery == nil && selected:
		a.discoveries.Go(func() { a.discover(ctx, s, c) })
	case selected:
		s.reach = a.newReach(c)
		a.discoveries.Go(func() { a.run(ctx, s.reach) })
		a.discoveries.Go(func() { a.compete(ctx, s, c) })
	default:
		s.reports.Clear() // nothing is seen from here
	}
	s.standing = s.reports.Stands(now, nil)
	a.timed.Send()
	return s
}

// update changes the session's reports and has everybody know what has come of it.
func (a *Agent) update(ctx context.Context, s *session, change func(r *reports.Reports, now time.Time)) {
	a.mu.Lock()
	if !a.runs(s) {
		a.mu.Unlock()
		return
	}
	change(&s.reports, time.Now())
	record := a.settle(ctx, s)
	a.mu.Unlock()
	record()
}

// settle finds out what is known of the session's devices now. It returns what logs
// that and records Events of it. registry.mu must be held, and not while that runs.
func (a *Agent) settle(ctx context.Context, s *session) (record func()) {
	logger, c, was := klog.FromContext(ctx), s.configuration, s.standing
	now := time.Now()
	cleared := s.reports.Settled() // if was is not: other nodes see the devices
	over := s.reports.Expire(now)
	named := a.named(c)
	s.standing = s.reports.Stands(now, named)
	s.limit(named)
	rejected := reports.Summary(s.standing.Rejected)
	leftOut := rejected != "" && rejected != s.rejected
	leftOutCount := reports.Count(s.standing.Rejected)
	s.rejected = rejected
	unchanged := was.Settled == s.standing.Settled && reports.EqualDevices(was.Devices, s.standing.Devices)
	if !unchanged {
		a.announce()
	}
	a.writer.Wake()
	if !s.standing.Next.IsZero() {
		a.timed.Send()
	}
	lost := map[string]int{} // how many devices of each source
	for _, w := range over {
		for hash := range w.Devices {
			if _, ok := s.standing.Devices[hash]; !ok {
				lost[w.Source]++
			}
		}
	}
	former := 0
	if !cleared && !s.reports.AllReported(now) {
		former = a.lostFormer(c, &was, &s.standing)
	}
	news := a.notifications(s, &was)
	devices, unusable := len(s.standing.Devices), 0
	for _, f := range s.standing.Devices {
		if f.Unschedulable {
			unusable++
		}
	}
	a.config.Metrics.Discovered(c.Name, devices-unusable, unusable)
	return func() {
		if leftOut {
			a.notices.add(noticeKind{c.Name, "", reasonRejected}, func(times int) {
				logger.Info("Left out devices that the handler reported",
					"count", leftOutCount, "reason", rejected, "times", times)
				a.warning(c, reasonRejected, times, "Node %s leaves out %s", a.config.NodeName, rejected)
			})
		}
		for _, source := range slices.Sorted(maps.Keys(lost)) {
			a.notices.add(noticeKind{c.Name, source, reasonLost}, func(times int) {
				logger.Info("Withdrew the devices of a source that does not work",
					"source", source, "devices", lost[source], "times", times)
				a.warning(c, reasonLost, times,
					"Node %s no longer reports %d devices: discovery handler %s has not worked since they were "+
						"reported last",
					a.config.NodeName, lost[source], source)
			})
		}
		if former > 0 {
			a.notices.add(noticeKind{c.Name, "", reasonLost}, func(times int) {
				logger.Info("Withdrew devices that no source has reported since discovery began",
					"devices", former, "times", times)
				a.warning(c, reasonLost, times,
					"Node %s no longer reports %d devices: no discovery handler %q has reported them since discovery "+
						"began",
					a.config.NodeName, former, c.Spec.DiscoveryHandler.Name)
			})
		}
		if !unchanged {
			a.notices.add(noticeKind{c.Name, "", "Changed"}, func(times int) {
				logger.Info("What is known of the devices has changed", "count", devices, "times", times)
			})
		}
		a.notifyHolders(c.Name, news)
	}
}

// lostFormer counts the Configuration's devices that only the node's slices know, and that
// are withdrawn now.
func (a *Agent) lostFormer(c *v0.Configuration, was, is *reports.Standing) (n int) {
	if was.Settled || was.Unreported == is.Unreported {
		return 0
	}
	for d := range a.written(c) {
		_, there := is.Devices[d.Hash]
		if !there && !d.Gone && was.Age(d.Hash, d.Shared) < reports.Withdrawn &&
			is.Age(d.Hash, d.Shared) == reports.Withdrawn {
			n++
		}
	}
	return n
}

// passTime settles sessions and gives notices when that is due, until ctx ends.
func (a *Agent) passTime(ctx context.Context) {
	for ctx.Err() == nil {
		next := a.notices.due()
		var records []func()
		a.mu.Lock()
		now := time.Now()
		for _, s := range a.sessions {
			if at := s.standing.Next; !at.IsZero() && !at.After(now) {
				records = append(records, a.settle(klog.NewContext(ctx, klog.FromContext(ctx).WithValues("configuration", klog.KObj(s.configuration))), s))
			}
			next = reports.Earlier(next, s.standing.Next)
		}
		a.mu.Unlock()
		for _, f := range records {
			f()
		}
		wait := time.Hour // when nothing is due
		if !next.IsZero() {
			wait = next.Sub(now)
		}
		sleep(ctx, wait, a.timed)
	}
}
