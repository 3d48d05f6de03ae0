package claims

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/slot"
)

// NamespaceLabels returns the labels of a namespace. It is asked for new claims of
// Configurations that select namespaces by labels, and for nothing else.
type NamespaceLabels func(ctx context.Context, namespace string) (map[string]string, error)

// NamespacesOf reads namespaces from the API server.
func NamespacesOf(client kubernetes.Interface) NamespaceLabels {
	return func(ctx context.Context, name string) (map[string]string, error) {
		ns, err := client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		return ns.Labels, nil
	}
}

// checkNamespace refuses a slot of a Configuration that does not allow the pod's namespace.
func checkNamespace(name slot.Name, of *akriv0.Configuration, namespace string,
	labelsOf func() (map[string]string, error)) error {
	switch allowed, err := of.MayBeUsedFrom(namespace, labelsOf); {
	case err != nil:
		return fmt.Errorf("slot %s cannot be claimed: whether pods of namespace %s may use it cannot be told: %w", name,
			namespace, err)
	case !allowed:
		return Refusef("slot %s is of Configuration %s/%s, whose spec.allowedNamespaces does not allow namespace %s: "+
			"delete the pod, or have the namespace allowed", name, of.Namespace, of.Name, namespace)
	}
	return nil
}
