package agent

import (
	"bytes"
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	v0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// duplicates remembers, by Configuration name, which Configuration has an
// Event that it gives way to which, so that there is one.
type duplicates map[string]map[types.UID]types.UID

// reconcileConfiguration starts, stops and updates discovery for the
// Configuration of the name, and has its devices looked at.
func (a *Agent) reconcileConfiguration(ctx context.Context, name string) {
	owner, others := a.owner(name)
	a.recordDuplicates(ctx, name, owner, others)
	first := owner
	if owner != nil && owner.Name != name {
		first = nil
	}
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

// owner returns the Configuration that has the resource of the name, nil for none, and
// those of the name that give way to it. One that is being deleted is neither.
func (a *Agent) owner(name string) (owner *v0.Configuration, others []*v0.Configuration) {
	all := a.allConfigurations()
	owner = v0.OldestOf(all).ResourceOwner(name)
	others = slices.DeleteFunc(all, func(c *v0.Configuration) bool { return c.Name != name || !c.MayOwnName() || c == owner })
	slices.SortFunc(others, v0.CompareOwners)
	return owner, others
}

// recordDuplicates logs, and records as Events, which Configurations give way to an older
// one that has their name.
func (a *Agent) recordDuplicates(ctx context.Context, name string, owner *v0.Configuration, others []*v0.Configuration) {
	before := a.duplicates[name]
	delete(a.duplicates, name)
	for _, c := range others {
		if a.duplicates[name] == nil {
			a.duplicates[name] = map[types.UID]types.UID{}
		}
		a.duplicates[name][c.UID] = owner.UID
		if before[c.UID] == owner.UID {
			continue
		}
		klog.FromContext(ctx).Info("A Configuration is not discovered, because an older one has its name",
			"configuration", klog.KObj(c), "older", klog.KObj(owner))
		has := "has"
		if owner.Name != name {
			has = "has or may have an Instance with"
		}
		a.config.Recorder.Eventf(c, corev1.EventTypeWarning, "DuplicateName",
			"Not discovered: Configuration %s/%s is older and %s the resource %s/%s. Rename this one, or delete the other.",
			owner.Namespace, owner.Name, has, v0.GroupName, name)
	}
}

// discovers reports whether the session is that of the Configuration as it is now.
func (s *session) discovers(c *v0.Configuration, selected bool) bool {
	is, was := &c.Spec, &s.configuration.Spec
	return s.configuration.UID == c.UID && s.selected == selected &&
		apiequality.Semantic.DeepEqual(is.Discovery, was.Discovery) &&
		apiequality.Semantic.DeepEqual(is.DiscoveryHandler, was.DiscoveryHandler) &&
		bytes.Equal(is.HandlerCABundle, was.HandlerCABundle)
}
