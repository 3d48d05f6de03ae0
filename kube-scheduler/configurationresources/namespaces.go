package configurationresources

import (
	"fmt"

	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/kube-scheduler/slotrequest"
	"github.com/kubeslot/kubeslot/types/assignment"
)

// allowed refuses a request whose namespace may not have what it asks for: a
// Configuration's spec.allowedNamespaces leaves it out, or cannot be evaluated. It returns
// nil when pods of the namespace may.
func (p *Plugin) allowed(req *ledger.Request) *fwk.Status {
	labels := func() (map[string]string, error) {
		ns, err := p.namespaces.Get(req.Namespace)
		if err != nil {
			return nil, fmt.Errorf("read the labels of namespace %s: %w", req.Namespace, err)
		}
		return ns.Labels, nil
	}
	for _, resource := range slotrequest.Resources(req) {
		c := p.cache.Configuration(resource)
		if c == nil || c.Spec.AllowedNamespaces == nil {
			continue
		}
		name := assignment.ResourcePrefix + resource
		switch allowed, err := c.MayBeUsedFrom(req.Namespace, labels); {
		case err != nil:
			return unresolvable(fmt.Sprintf("it cannot be told whether pods of namespace %s may use %s: %v", req.Namespace, name, err))
		case !allowed:
			return unresolvable(fmt.Sprintf("pods of namespace %s may not use %s: spec.allowedNamespaces of Configuration %s/%s does not allow the namespace",
				req.Namespace, name, c.Namespace, c.Name))
		}
	}
	return nil
}
