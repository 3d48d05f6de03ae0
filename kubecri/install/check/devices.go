package check

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubeslot/kubeslot/kubecri/agent/reports"
	"github.com/kubeslot/kubeslot/kubecri/claims"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// devices looks what this node reaches and uses. It returns false when the custom
// resources cannot be read.
func (c *checker) devices(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	configurations, err := c.Client.AkriV0().Configurations(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		c.fail("devices", "list Configurations: %v. Are the CRDs of deploy/crds applied?", err)
		return false
	}
	for i := range configurations.Items {
		c.configurations = append(c.configurations, &configurations.Items[i])
	}
	mine := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", c.Node).String()}
	options := mine
	shared := map[*akriv0.Configuration]bool{} // of which this node reaches what any node reports
	for _, configuration := range c.configurations {
		discovery := configuration.Spec.Discovery
		if discovery == nil {
			continue
		}
		if c.nodeError != nil {
			c.fail("devices", "get node %s, whose labels say what it reaches: %v", c.Node, c.nodeError)
			return false
		}
		if labels.SelectorFromSet(discovery.NodeSelector).Matches(labels.Set(c.node.Labels)) {
			shared[configuration] = true
		}
	}
	if len(shared) > 0 {
		options = metav1.ListOptions{}
	}
	slices, err := c.Client.KubeslotV1alpha1().DeviceSlices().List(ctx, options)
	if err != nil {
		c.fail("devices", "list DeviceSlices: %v. Are the CRDs of deploy/crds applied?", err)
		return false
	}
	claimed, err := c.Client.KubeslotV1alpha1().SlotClaims().List(ctx, mine)
	if err != nil {
		c.fail("devices", "list SlotClaims: %v. Are the CRDs of deploy/crds applied?", err)
		return false
	}
	c.claimed, c.reached = claimed.Items, map[string]v1alpha1.Device{}
	slots, unschedulable, gone := 0, 0, 0
	for i := range slices.Items {
		s := &slices.Items[i].Spec
		for _, d := range s.Devices {
			if d.Gone {
				if s.NodeName == c.Node {
					gone++
				}
				continue
			}
			configuration := claims.Owner(c.configurations, d.Configuration.Name)
			namesake := claims.Owner(c.configurations, d.Instance())
			if _, known := c.reached[d.Instance()]; known || namesake != nil || configuration == nil ||
				!d.CountsFor(reports.Reference(configuration), configuration.Spec.HashDigits(), s.NodeName) {
				continue
			}
			here := s.NodeName == c.Node
			if configuration.Spec.Discovery != nil {
				here = shared[configuration] && d.Shared
			}
			if here {
				c.reached[d.Instance()] = d
				slots += configuration.Spec.Slots()
				if d.Unschedulable {
					unschedulable++
				}
			}
		}
		for _, p := range s.Problems {
			if s.NodeName == c.Node {
				c.note("devices", "%s: %s", p.Reason, p.Message)
			}
		}
	}
	c.ok("devices", "%d Configurations; node %s reaches %d devices, with %d slots, and has claimed %d slots",
		len(c.configurations), c.Node, len(c.reached), slots, len(claimed.Items))
	if unschedulable > 0 {
		c.note("devices", "%d of them are for no new pods, since their discovery handler does not work: see docs/discovery.md", unschedulable)
	}
	if gone > 0 {
		c.note("devices", "%d more are gone, and containers here hold slots of them", gone)
	}
	return true
}
