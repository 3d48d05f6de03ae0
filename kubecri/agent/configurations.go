package agent

import (
	"bytes"
	"context"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"

	v0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// reconcileConfiguration starts, stops and updates discovery for the
// Configuration of the name, and has its devices looked at.
func (a *Agent) reconcileConfiguration(ctx context.Context, name string) {
	first := a.oldest().InForce(name)
	selected := first != nil && a.selects(first)
	record := func() {}

	a.mu.Lock()
	s := a.sessions[name]
	if s != nil && (first == nil || !s.discovers(first, selected)) {
		s.stop()
		delete(a.sessions, name)
		a.config.Metrics.DiscoveryEnded(name)
		s = nil
	}
	switch {
	case first == nil:
	case s == nil:
		a.sessions[name] = a.startSession(ctx, first, selected)
	default:
		record = a.configure(ctx, s, first)
	}
	a.announce()
	a.mu.Unlock()
	record()
	a.writer.Wake()
	a.config.ReachChanged()
}

// selects reports whether spec.discovery, or else spec.handlerNodeSelector, selects this node; true
// where neither is set.
func (a *Agent) selects(c *v0.Configuration) bool {
	if !asksForLabels(c) {
		return true
	}
	selector := c.Spec.HandlerNodeSelector
	if c.Spec.Discovery != nil {
		selector = c.Spec.Discovery.NodeSelector
	}
	node := a.node()
	return node != nil && labels.SelectorFromSet(selector).Matches(labels.Set(node.Labels))
}

// asksForLabels reports whether the Configuration selects nodes that discover.
func asksForLabels(c *v0.Configuration) bool {
	return c.Spec.Discovery != nil || len(c.Spec.HandlerNodeSelector) > 0
}

// discovers reports whether the session is that of the Configuration as it is now.
func (s *session) discovers(c *v0.Configuration, selected bool) bool {
	is, was := &c.Spec, &s.configuration.Spec
	return s.configuration.UID == c.UID && s.selected == selected &&
		apiequality.Semantic.DeepEqual(is.Discovery, was.Discovery) &&
		apiequality.Semantic.DeepEqual(is.DiscoveryHandler, was.DiscoveryHandler) &&
		bytes.Equal(is.HandlerCABundle, was.HandlerCABundle)
}
