package agent

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/kubecri/agent/reports"
	v0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
	"github.com/kubeslot/kubeslot/types/spelling"
)

// Reasons of problems, and of their Events.
const (
	reasonUnknownHandler = v1alpha1.UnknownHandler
	reasonProperties     = "NoDiscoveryProperties"
	reasonInvalid        = "InvalidDiscoveryDetails"
	reasonFailed         = "DiscoveryFailed"
	reasonSecrets        = "SecretsNeedTLS"
	reasonRejected       = "DevicesRejected"
	reasonLost           = "DevicesLost"
)

// discover keeps all sources of the Configuration's handler running until ctx ends, once the values of
// discoveryProperties are known. With other values they start anew.
func (a *Agent) discover(ctx context.Context, s *session, c *v0.Configuration) {
	news := make(chan map[string][]byte)
	var workers sync.WaitGroup
	defer workers.Wait()
	workers.Go(func() { a.followProperties(ctx, s, c, news) })

	type worker struct {
		source *discovery.Source
		stop   context.CancelFunc
		done   chan struct{}
	}
	running := map[string]*worker{} // by the source's ID
	var values map[string][]byte    // nil until they are known; never changed
	settled := time.Duration(0)     // how long a source must work until its problem is over
	for anew := false; ctx.Err() == nil; {
		sources, changed := a.config.Registry.Sources(c.Spec.DiscoveryHandler.Name)
		there := map[string]*discovery.Source{}
		for _, source := range sources {
			there[source.ID] = source
		}
		for id, w := range running {
			stays := there[id] == w.source
			if stays && !anew {
				continue
			}
			w.stop()
			<-w.done // so that it does not report after its successor
			delete(running, id)
			if !stays {
				a.update(ctx, s, func(r *reports.Reports, now time.Time) { r.Remove(id, now) })
				a.forgetProblem(ctx, s, id, 0)
			}
		}
		for id, source := range there {
			if running[id] != nil {
				continue
			}
			a.update(ctx, s, func(r *reports.Reports, _ time.Time) { r.Join(id, source.BuiltIn) })
			if values == nil {
				continue
			}
			with, pause := values, settled
			working, stop := context.WithCancel(klog.NewContext(ctx, klog.FromContext(ctx).WithValues("source", id)))
			w := &worker{source, stop, make(chan struct{})}
			running[id] = w
			workers.Go(func() {
				defer close(w.done)
				defer stop()
				a.runSource(working, s, c, source, with, pause)
			})
		}
		others := a.awaitChange(ctx, s, c, len(sources), changed, news)
		if anew = others != nil; anew {
			if values != nil {
				klog.FromContext(ctx).Info("Discovery starts anew, since discoveryProperties have changed")
				settled = restarts.Duration // until then it is the same problem
			}
			values = others
		}
	}
}

// awaitSource waits until there is a source of the Configuration's handler; false when
// ctx ends first.
func (a *Agent) awaitSource(ctx context.Context, s *session, c *v0.Configuration) bool {
	for ctx.Err() == nil {
		sources, changed := a.config.Registry.Sources(c.Spec.DiscoveryHandler.Name)
		if len(sources) > 0 {
			a.forgetProblems(s, unknownHandler)
			return true
		}
		a.awaitChange(ctx, s, c, 0, changed, nil)
	}
	return false
}

// awaitChange waits until the handler has other sources, or there are other values, which it returns. That there are
// no sources is reported, when endpoints that a former life of the agent knew have had the time to register.
func (a *Agent) awaitChange(ctx context.Context, s *session, c *v0.Configuration, sources int, changed <-chan struct{},
	news <-chan map[string][]byte) (values map[string][]byte) {
	if sources > 0 {
		a.forgetProblems(s, unknownHandler)
	} else {
		if sleep(ctx, time.Until(a.registered()), changed); ctx.Err() != nil || isClosed(changed) {
			return nil
		}
		others, meant := "", ""
		if names := a.config.Registry.Names(); len(names) > 0 {
			others = ", which has " + strings.Join(names, ", ")
			meant = spelling.DidYouMean(c.Spec.DiscoveryHandler.Name, names)
		}
		if meant == "" {
			meant = "."
		}
		where := "this node"
		if c.Spec.HandlerOnEach() {
			where += " of spec.handlerNodeSelector"
		}
		a.recordProblem(ctx, s, "", reasonUnknownHandler, fmt.Errorf(
			"no discovery handler %q on %s%s: run it there, and discovery starts%s "+
				"The handler of a Configuration cannot be changed: to name another, delete the Configuration and apply it again under the same name", c.Spec.DiscoveryHandler.Name, where, others, meant))
	}
	select {
	case values = <-news:
	case <-changed:
	case <-ctx.Done():
	}
	return values
}

// followProperties sends the values of discoveryProperties until ctx ends. When they cannot be read
// any more the last ones stay.
func (a *Agent) followProperties(ctx context.Context, s *session, c *v0.Configuration, news chan<- map[string][]byte) {
	a.properties.Follow(ctx, c.Namespace, c.Spec.DiscoveryHandler.DiscoveryProperties, func(values map[string][]byte, err error) {
		if err != nil {
			a.recordProblem(ctx, s, propertiesProblem, reasonProperties, err)
			return
		}
		a.forgetProblem(ctx, s, propertiesProblem, 0)
		select {
		case news <- values:
		case <-ctx.Done():
		}
	})
}

// propertiesProblem is the problem's key where others have a source's ID, which has an @.
const propertiesProblem = "properties"

const (
	// restarting is how long a process may be away before that is reported: one that is
	// replaced by its next version is back sooner.
	restarting = 2 * time.Second

	// replaced is how long a process that registered again must then work for its end to be a new
	// failure: one that fails each time it registers is reported.
	replaced = 5 * time.Second
)

// runSource keeps one source running until ctx ends. pause is how long it must work until its problem is over.
func (a *Agent) runSource(ctx context.Context, s *session, c *v0.Configuration, source *discovery.Source,
	values map[string][]byte, pause time.Duration) {
	// A registration ends the waiting for the next attempt. It does not shorten pause.
	restart, settle := restarts, restarts
	registered := false   // again, before the last run
	var failing time.Time // since when each run has ended soon; zero while it works
	for ctx.Err() == nil {
		renewed, started := source.Renewed(), time.Now()
		running, stop := context.WithCancel(ctx)
		var watching sync.WaitGroup
		watching.Go(func() { a.forgetProblem(running, s, source.ID, pause) })
		err := a.runHandler(running, s, c, source, values)
		stop()
		watching.Wait()
		if ctx.Err() != nil {
			return
		}
		now := time.Now()
		switch lasted := now.Sub(started); {
		case lasted > restarts.Cap: // a new failure, not one that goes on
			restart, settle, failing = restarts, restarts, time.Time{}
		case registered && lasted >= replaced:
			failing = time.Time{}
		}
		if failing.IsZero() {
			failing = now
		}
		a.failed(ctx, s, c, source, failing, err)
		if errors.Is(err, discovery.ErrInvalid) || errors.Is(err, discovery.ErrSecretsNeedTLS) {
			select {
			case <-renewed: // perhaps by another version of it
			case <-ctx.Done():
			}
			pause = max(pause, restarts.Duration) // until then it is the same problem
			continue
		}
		pause = settle.Step()
		sleep(ctx, restart.Step(), renewed)
		if registered = isClosed(renewed); registered {
			restart = restarts
		}
	}
}

// failed says that a source does not work, and has not since then.
func (a *Agent) failed(ctx context.Context, s *session, c *v0.Configuration, source *discovery.Source,
	since time.Time, err error) {
	a.config.Metrics.DiscoveryFailed(source.Handler.Name())
	a.update(ctx, s, func(r *reports.Reports, now time.Time) { r.Fail(source.ID, now) })
	reason, err := reasonFailed, fmt.Errorf("discovery handler %q: %w", source.Handler.Name(), err)
	switch {
	case errors.Is(err, discovery.ErrInvalid):
		reason = reasonInvalid
	case errors.Is(err, discovery.ErrSecretsNeedTLS):
		reason = reasonSecrets
	case !source.BuiltIn && time.Since(since) < restarting:
		a.notices.add(noticeKind{c.Name, source.ID, "Retrying"}, func(times int) {
			klog.FromContext(ctx).Info("A discovery handler does not answer, trying again", "reason", err,
				"times", times)
		})
		return
	}
	a.recordProblem(ctx, s, source.ID, reason, err)
}

// runHandler calls the handler once; it returns an error in any case. A panic is one: this process is also the node's container runtime
// endpoint, which a malformed answer from some device must not take down.
func (a *Agent) runHandler(ctx context.Context, s *session, c *v0.Configuration, source *discovery.Source, properties map[string][]byte) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
			stack := string(debug.Stack())
			a.notices.add(noticeKind{c.Name, source.ID, "Panic"}, func(times int) {
				klog.FromContext(ctx).Error(err, "The discovery handler has a bug", "stack", stack, "times", times)
			})
		}
	}()
	started, reported := time.Now(), false
	request := discovery.Request{Details: c.Spec.DiscoveryHandler.DiscoveryDetails, Properties: properties,
		Secret: ofSecret(c, properties), CABundle: c.Spec.HandlerCABundle, Before: a.before(c),
		Warn: func(message string) { a.warn(ctx, s, message) }}
	err = source.Handler.Discover(ctx, request, func(result discovery.Result) {
		// What reports after its time may be a handler that lost sight of its devices
		// because it was told to stop.
		if ctx.Err() != nil {
			return
		}
		if !reported {
			reported = true
			a.config.Metrics.DiscoveryReported(source.Handler.Name(), c.Name, time.Since(started))
		}
		a.take(ctx, s, source, result)
	})
	if err == nil {
		err = errors.New("ended, though it should go on")
	}
	return err
}

// ofSecret reports whether one of the values of discoveryProperties is that of a Secret.
func ofSecret(c *v0.Configuration, values map[string][]byte) bool {
	return slices.ContainsFunc(c.Spec.DiscoveryHandler.DiscoveryProperties, func(p v0.DiscoveryProperty) bool {
		_, there := values[p.Name]
		return there && p.ValueFrom != nil && p.ValueFrom.SecretKeyRef != nil
	})
}

// take makes a report what is known of the source's devices.
func (a *Agent) take(ctx context.Context, s *session, source *discovery.Source, result discovery.Result) {
	a.mu.RLock()
	configuration := s.configuration
	known := s.reports.Last(source.ID)
	a.mu.RUnlock()
	e := reports.Examination{Configuration: configuration, Node: a.config.NodeName, Known: known, Named: a.named(configuration),
		Allowed: func(d discovery.Device) error { return a.mayGive(source, d) }}
	devices, rejected := e.Examine(result)
	a.update(ctx, s, func(r *reports.Reports, _ time.Time) { r.Report(source.ID, result.Shared, devices, rejected) })
}

// mayGive returns an error for a device with paths that its source may not give.
func (a *Agent) mayGive(source *discovery.Source, d discovery.Device) error {
	handler := source.Handler.Name()
	if !source.Unproven {
		return a.config.AllowedPaths.Check(handler, d)
	}
	if err := a.config.AllowedPaths.Named().Check(handler, d); err != nil {
		return fmt.Errorf("%w; over http:// it may give what an entry %q there allows, and no more", err, handler+"=path")
	}
	return nil
}

// named returns which of the Configuration's devices has a hash in this node's slices, "" for none: of two
// devices of one hash, the one that came first keeps it. The slices are read once, at the first call.
func (a *Agent) named(c *v0.Configuration) func(hash string) (id string) {
	ids := sync.OnceValue(func() map[string]string {
		ids := map[string]string{}
		for d := range a.written(c) {
			if _, ok := ids[d.Hash]; !ok {
				ids[d.Hash] = d.ID
			}
		}
		return ids
	})
	return func(hash string) string { return ids()[hash] }
}
