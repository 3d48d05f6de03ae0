package agent

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/discovery"
	v0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// session is one Configuration under discovery. Its fields are guarded by
// Agent.mu; maps are replaced, never changed.
type session struct {
	stop     context.CancelFunc // never changes
	selected bool               // spec.discovery, if set, selects this node; never changes
	reach    *reach             // set when spec.discovery is, and selects this node; never changes
	// configuration is the newest version seen.
	configuration *v0.Configuration
	// reported is false until this node's devices are known: until then nothing may
	// be taken away.
	reported bool
	devices  map[string]found // by hash
	// problem is what keeps discovery from working, as last told; no reason for none.
	problem v1alpha1.Problem
	// rejected says which devices of the last report were left out.
	rejected string
}

// found is a device as its handler reported it.
type found struct {
	discovery.Device
	shared bool
	hash   string // slot.InstanceHash of it
	size   int    // in a slice, as JSON
}

// startSession runs the Configuration's handler until stopped: at all times, or with
// spec.discovery while this node is one of those that discover.
func (a *Agent) startSession(ctx context.Context, c *v0.Configuration, selected bool) *session {
	logger := klog.FromContext(ctx).WithValues(
		"configuration", klog.KObj(c), "handler", c.Spec.DiscoveryHandler.Name)
	ctx, stop := context.WithCancel(klog.NewContext(ctx, logger))
	s := &session{configuration: c, stop: stop, selected: selected}
	switch {
	case c.Spec.Discovery == nil:
		a.discoveries.Go(func() { a.discover(ctx, s, c) })
	case selected:
		s.reach = a.newReach(c)
		a.discoveries.Go(func() { a.run(ctx, s.reach) })
		a.discoveries.Go(func() { a.compete(ctx, s, c) })
	default:
		s.reported = true // nothing is seen from here
	}
	return s
}

// discover keeps the handler running until ctx ends.
func (a *Agent) discover(ctx context.Context, s *session, c *v0.Configuration) {
	restart, info := a.config.Restart, c.Spec.DiscoveryHandler
	var pause time.Duration
	for {
		handler := a.awaitHandler(ctx, s, info.Name)
		if handler == nil {
			return
		}
		started := a.config.Clock.Now()
		running, stop := context.WithCancel(ctx)
		after := pause
		a.discoveries.Go(func() { a.forgetProblem(running, s, after) })
		err := a.runHandler(running, c.Namespace, info, handler, func(result discovery.Result) { a.take(ctx, s, result) })
		stop()
		if ctx.Err() != nil {
			return
		}
		if a.config.Clock.Since(started) > a.config.Restart.Cap { // a new failure, not one that goes on
			restart = a.config.Restart
		}
		a.tellProblem(ctx, s, "DiscoveryFailed", fmt.Errorf("discovery handler %q: %w", info.Name, err))
		pause = restart.Step()
		a.sleep(ctx, pause, nil)
	}
}

// awaitHandler waits until there is a handler of the name; nil when ctx ends first.
func (a *Agent) awaitHandler(ctx context.Context, s *session, name string) discovery.Handler {
	for ctx.Err() == nil {
		handler, added := a.handler(name)
		if handler != nil {
			return handler
		}
		a.tellProblem(ctx, s, "UnknownHandler", fmt.Errorf(
			"no discovery handler %q on this node: discovery starts when there is one", name))
		select {
		case <-added:
		case <-ctx.Done():
		}
	}
	return nil
}

// runHandler calls the handler once; it returns an error in any case. A panic
// is one: this process is also the node's container runtime endpoint, which a
// malformed answer from some device must not take down.
func (a *Agent) runHandler(ctx context.Context, namespace string, info v0.DiscoveryHandlerInfo, handler discovery.Handler, report func(discovery.Result)) (err error) {
	properties, err := resolve(ctx, a.config.KubeClient, readable{own: namespace, others: a.config.PropertyNamespaces}, info.DiscoveryProperties)
	if err != nil {
		return err
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
			klog.FromContext(ctx).Error(err, "The discovery handler has a bug", "stack", string(debug.Stack()))
		}
	}()
	// What reports after its time may be a handler that lost sight of its devices
	// because it was told to stop.
	request := discovery.Request{Details: info.DiscoveryDetails, Properties: properties}
	err = handler.Discover(ctx, request, func(result discovery.Result) {
		if ctx.Err() == nil {
			report(result)
		}
	})
	if err == nil {
		err = errors.New("ended, though it should go on")
	}
	return err
}

// take makes a report what is known of the session's devices.
func (a *Agent) take(ctx context.Context, s *session, result discovery.Result) {
	a.mu.RLock()
	configuration := s.configuration
	a.mu.RUnlock()
	devices, errs := examine(configuration, a.config.NodeName, result, a.named(configuration))
	rejected := summary(errs)

	a.mu.Lock()
	if a.sessions[configuration.Name] != s { // stopped meanwhile
		a.mu.Unlock()
		return
	}
	unchanged := s.reported && equalDevices(s.devices, devices)
	tell := rejected != "" && rejected != s.rejected
	s.reported, s.devices, s.rejected = true, devices, rejected
	if !unchanged {
		a.announce()
	}
	a.mu.Unlock()
	wake(a.dirty)

	logger := klog.FromContext(ctx)
	if tell {
		logger.Info("Left out devices that the handler reported", "count", len(errs), "reason", rejected)
		a.config.Recorder.Eventf(configuration, corev1.EventTypeWarning, "DevicesRejected",
			"Node %s leaves out %s", a.config.NodeName, rejected)
	}
	if !unchanged {
		logger.Info("The handler reported devices", "count", len(devices))
	}
}

// named returns which of the Configuration's devices has a hash in this node's
// slices: of two devices of one hash, the one that came first keeps it.
func (a *Agent) named(c *v0.Configuration) func(hash string) (id string) {
	return func(hash string) string {
		for _, slice := range a.ownSlices() {
			for i := range slice.Spec.Devices {
				if d := &slice.Spec.Devices[i]; d.Hash == hash && d.Configuration == reference(c) {
					return d.ID
				}
			}
		}
		return ""
	}
}

// tellProblem logs, and writes as an Event and into the node's slices, what keeps
// discovery from working: once until it changes, or is over.
func (a *Agent) tellProblem(ctx context.Context, s *session, reason string, err error) {
	a.mu.Lock()
	known := s.problem.Reason == reason && withoutNumbers(s.problem.Message) == withoutNumbers(err.Error())
	configuration := s.configuration
	if !known {
		s.problem = v1alpha1.Problem{Reason: reason, Message: err.Error()}
		a.announce() // WaitDevice says what it waits for
	}
	a.mu.Unlock()
	if known {
		klog.FromContext(ctx).V(2).Info("Discovery still does not work", "reason", err.Error())
		return
	}
	wake(a.dirty)
	klog.FromContext(ctx).Error(err, "Discovery does not work")
	a.config.Recorder.Eventf(configuration, corev1.EventTypeWarning, reason, "Node %s: %v", a.config.NodeName, err)
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

// forgetProblem ends the session's problem once the handler has run for as long as
// was waited for it, and not before: a handler that fails again and again must not
// have the slice written each time.
func (a *Agent) forgetProblem(running context.Context, s *session, after time.Duration) {
	a.sleep(running, after, nil)
	a.mu.Lock()
	defer a.mu.Unlock()
	if running.Err() == nil && s.problem.Reason != "" {
		s.problem = v1alpha1.Problem{}
		wake(a.dirty)
	}
}

// problems are those to be written into the node's slices.
func (s *session) problems() []v1alpha1.Problem {
	var all []v1alpha1.Problem
	ref := reference(s.configuration)
	if p := s.problem; p.Reason != "" {
		p.Configuration = &ref
		all = append(all, p)
	}
	if s.rejected != "" {
		all = append(all, v1alpha1.Problem{Configuration: &ref, Reason: "DevicesRejected", Message: "left out: " + s.rejected})
	}
	return all
}

func reference(c *v0.Configuration) v1alpha1.ConfigurationReference {
	return v1alpha1.ConfigurationReference{Namespace: c.Namespace, Name: c.Name}
}
