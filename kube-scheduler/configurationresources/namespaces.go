package configurationresources

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
)

// forbidden refuses a request whose namespace may not have what it asks for: a
// Configuration's spec.allowedNamespaces leaves it out, or cannot be evaluated. It returns
// nil when pods of the namespace may. configuration returns that of a resource, nil for none;
// labelsOf returns a namespace's labels.
func forbidden(req *ledger.Request, configuration func(resource string) *akriv0.Configuration, labelsOf func(namespace string) (map[string]string, error)) *fwk.Status {
	for _, resource := range resourcesOf(req) {
		c := configuration(resource)
		if c == nil || c.Spec.AllowedNamespaces == nil {
			continue
		}
		name := assignment.ResourcePrefix + resource
		switch allowed, err := c.MayBeUsedFrom(req.Namespace, func() (map[string]string, error) { return labelsOf(req.Namespace) }); {
		case err != nil:
			return unresolvable(fmt.Sprintf("it cannot be told whether pods of namespace %s may use %s: %v", req.Namespace, name, err))
		case !allowed:
			return unresolvable(fmt.Sprintf("pods of namespace %s may not use %s: spec.allowedNamespaces of Configuration %s/%s does not allow the namespace",
				req.Namespace, name, c.Namespace, c.Name))
		}
	}
	return nil
}

// allowed is forbidden with what the API says.
func (p *Plugin) allowed(req *ledger.Request) *fwk.Status {
	return forbidden(req, p.cache.configuration, func(namespace string) (map[string]string, error) {
		ns, err := p.namespaces.Get(namespace)
		if err != nil {
			return nil, fmt.Errorf("read the labels of namespace %s: %w", namespace, err)
		}
		return ns.Labels, nil
	})
}

// setNamespace has the waiting pods of a namespace tried that may have become allowed to
// use what they ask for.
func (b *slotCache) setNamespace(namespace *v1.Namespace) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tryAllowed(func(pod *v1.Pod, c *akriv0.Configuration) bool {
		return pod.Namespace == namespace.Name && c.Spec.AllowedNamespaces != nil
	})
}

// tryAllowed has the waiting pods tried that ask for a Configuration of which helps says
// that it may allow them now. Who may use a Configuration changes rarely, so they are
// tried all at once. The caller holds mu.
func (b *slotCache) tryAllowed(helps func(*v1.Pod, *akriv0.Configuration) bool) {
	b.queue.RetryNow(b.askingFor(helps)...)
}

// askingFor are the waiting pods that ask for a Configuration of which selects says so. The
// caller holds mu.
func (b *slotCache) askingFor(selects func(*v1.Pod, *akriv0.Configuration) bool) (uids []types.UID) {
	b.queue.Each(func(pod *v1.Pod, _ *podWait, resources []string) {
		if slices.ContainsFunc(resources, func(resource string) bool {
			c := b.ledger.Configuration(resource)
			return c != nil && selects(pod, c)
		}) {
			uids = append(uids, pod.UID)
		}
	})
	return uids
}

func sameNamespaceLabels(a, b *v1.Namespace) bool { return maps.Equal(a.Labels, b.Labels) }
