package configurationresources

import (
	"fmt"

	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubeslot/kubeslot/device-scheduler/ledger"
	"github.com/kubeslot/kubeslot/kube-scheduler/slotrequest"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/assignment"
)

// forbidden refuses a request whose namespace may not have what it asks for: a
// Configuration's spec.allowedNamespaces leaves it out, or cannot be evaluated. It returns
// nil when pods of the namespace may. configuration returns that of a resource, nil for none;
// labelsOf returns a namespace's labels.
func forbidden(req *ledger.Request, configuration func(resource string) *akriv0.Configuration, labelsOf func(namespace string) (map[string]string, error)) *fwk.Status {
	for _, resource := range slotrequest.Resources(req) {
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
	return forbidden(req, p.cache.Configuration, func(namespace string) (map[string]string, error) {
		ns, err := p.namespaces.Get(namespace)
		if err != nil {
			return nil, fmt.Errorf("read the labels of namespace %s: %w", namespace, err)
		}
		return ns.Labels, nil
	})
}
