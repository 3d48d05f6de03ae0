package claims

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	clientset "github.com/kubeslot/kubeslot/types/client/clientset/versioned"
	"github.com/kubeslot/kubeslot/types/slot"
)

// Explain finds out for a person what Take would say to the request on the node,
// as far as the API server knows: it returns which of the slots the pod holds
// already, and an error like Take's. Nothing is claimed.
func Explain(ctx context.Context, client clientset.Interface, namespaces NamespaceLabels, configurations []*akriv0.Configuration, node string, r Request) (holds map[slot.Name]bool, err error) {
	if _, err := r.verify(); err != nil {
		return nil, err
	}
	holds = map[slot.Name]bool{}
	for _, g := range r.Grants {
		claim, err := client.KubeslotV1alpha1().SlotClaims().Get(ctx, g.Slot.String(), metav1.GetOptions{})
		there := !apierrors.IsNotFound(err)
		if there && err != nil {
			return nil, fmt.Errorf("look who has SlotClaim %s: %w", g.Slot, err)
		}
		holds[g.Slot] = there && same(claim, specOf(node, r.Pod, r.Container, levelOf(g)))
		labelsOf := func() (map[string]string, error) { return namespaces(ctx, r.Pod.Namespace) }
		if err := permit(g, configurations, holds[g.Slot], r.Pod.Namespace, labelsOf); err != nil {
			return nil, err
		}
		if there && !holds[g.Slot] {
			return nil, refuseHeld(g.Slot, claim)
		}
	}
	return holds, nil
}
