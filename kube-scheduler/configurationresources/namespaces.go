package configurationresources

import (
	"fmt"

	fwk "k8s.io/kube-scheduler/framework"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
)

// allowed refuses a request for the resource whose namespace may not have it: the Configuration's
// spec.allowedNamespaces leaves it out, or cannot be evaluated. It returns nil when pods of the
// namespace may.
func (p *Plugin) allowed(namespace, resource string, c *akriv0.Configuration) *fwk.Status {
	labels := func() (map[string]string, error) {
		ns, err := p.namespaces.Get(namespace)
		if err != nil {
			return nil, fmt.Errorf("read the labels of namespace %s: %w", namespace, err)
		}
		return ns.Labels, nil
	}
	name := assignment.ResourcePrefix + resource
	switch allowed, err := c.MayBeUsedFrom(namespace, labels); {
	case err != nil:
		return unresolvable(fmt.Sprintf("it cannot be told whether pods of namespace %s may use %s: %v",
			namespace, name, err))
	case !allowed:
		return unresolvable(fmt.Sprintf("pods of namespace %s may not use %s: "+
			"spec.allowedNamespaces of Configuration %s/%s does not allow the namespace",
			namespace, name, c.Namespace, c.Name))
	}
	return nil
}
