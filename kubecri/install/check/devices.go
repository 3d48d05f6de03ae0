package check

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

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
	shared, err := c.discoveredElsewhere(ctx)
	if err != nil {
		c.fail("devices", "get node %s, whose labels say what it reaches: %v", c.Node, err)
		return false
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
	c.reached = map[string]v1alpha1.Device{}
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
			if _, known := c.reached[d.Instance()]; known || namesake != nil || !fits(configuration, s.NodeName, &d) {
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

// discoveredElsewhere returns the Configurations of which this node reaches what any
// node reports.
func (c *checker) discoveredElsewhere(ctx context.Context) (map[*akriv0.Configuration]bool, error) {
	found := map[*akriv0.Configuration]bool{}
	var node *corev1.Node
	for _, configuration := range c.configurations {
		discovery := configuration.Spec.Discovery
		if discovery == nil {
			continue
		}
		if node == nil {
			var err error
			if node, err = c.Kube.CoreV1().Nodes().Get(ctx, c.Node, metav1.GetOptions{}); err != nil {
				return nil, err
			}
		}
		if labels.SelectorFromSet(discovery.NodeSelector).Matches(labels.Set(node.Labels)) {
			found[configuration] = true
		}
	}
	return found, nil
}

// fits reports whether a node's report of a device is believed: it is for the
// Configuration that owns the name, and its hash is what it is to be.
func fits(owner *akriv0.Configuration, node string, d *v1alpha1.Device) bool {
	return owner != nil && owner.Namespace == d.Configuration.Namespace && len(d.Hash) == owner.Spec.HashDigits() && d.Check(node) == nil
}
