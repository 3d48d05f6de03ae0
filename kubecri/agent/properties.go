package agent

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	v0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// AllNamespaces in Config.PropertyNamespaces stands for every namespace.
const AllNamespaces = "*"

// resolve reads the values of discoveryProperties. Without valueFrom it makes
// no API call.
//
// It refuses what is in a namespace that is not readable: kubecri's rights are not those
// of whoever wrote the Configuration, who could otherwise have it read, and send
// to a device of his own, any Secret that some Configuration needs.
func resolve(ctx context.Context, client kubernetes.Interface, from readable, properties []v0.DiscoveryProperty) (map[string][]byte, error) {
	values := make(map[string][]byte, len(properties))
	for _, p := range properties {
		switch {
		case p.Value != nil:
			values[p.Name] = []byte(*p.Value)
		case p.ValueFrom != nil && p.ValueFrom.SecretKeyRef != nil:
			if err := read(ctx, from, "Secret", p.Name, *p.ValueFrom.SecretKeyRef, values, secretKey(client)); err != nil {
				return nil, err
			}
		case p.ValueFrom != nil && p.ValueFrom.ConfigMapKeyRef != nil:
			if err := read(ctx, from, "ConfigMap", p.Name, *p.ValueFrom.ConfigMapKeyRef, values, configMapKey(client)); err != nil {
				return nil, err
			}
		default:
			return nil, fmt.Errorf("discovery property %q has neither a value nor a valueFrom", p.Name)
		}
	}
	return values, nil
}

// readable are the namespaces that a Configuration's properties may refer to: its
// own, and Config.PropertyNamespaces.
type readable struct {
	own    string
	others []string
}

func (r readable) allows(namespace string) bool {
	return namespace == r.own || slices.Contains(r.others, namespace) || slices.Contains(r.others, AllNamespaces)
}

// A keyReader returns a key's value, and whether the object has the key.
type keyReader func(ctx context.Context, namespace, name, key string) ([]byte, bool, error)

func read(ctx context.Context, from readable, object, property string, ref v0.DiscoveryPropertyKeySelector, values map[string][]byte, get keyReader) error {
	namespace := ref.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	if !from.allows(namespace) {
		return fmt.Errorf("discovery property %q: %s %s/%s is not in the Configuration's own namespace %q; kubecri's --discovery-property-namespaces=%s would allow it (a reference without namespace means %q)",
			property, object, namespace, ref.Name, from.own, namespace, metav1.NamespaceDefault)
	}
	optional := ref.Optional != nil && *ref.Optional
	value, ok, err := get(ctx, namespace, ref.Name, ref.Key)
	switch {
	case apierrors.IsNotFound(err) && optional:
		return nil
	case err != nil:
		return fmt.Errorf("discovery property %q: read %s %s/%s: %w", property, object, namespace, ref.Name, err)
	case !ok && optional:
		return nil
	case !ok:
		return fmt.Errorf("discovery property %q: %s %s/%s has no key %q", property, object, namespace, ref.Name, ref.Key)
	}
	values[property] = value
	return nil
}

func secretKey(client kubernetes.Interface) keyReader {
	return func(ctx context.Context, namespace, name, key string) ([]byte, bool, error) {
		secret, err := client.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, false, err
		}
		value, ok := secret.Data[key]
		return value, ok, nil
	}
}

func configMapKey(client kubernetes.Interface) keyReader {
	return func(ctx context.Context, namespace, name, key string) ([]byte, bool, error) {
		configMap, err := client.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, false, err
		}
		if value, ok := configMap.Data[key]; ok {
			return []byte(value), true, nil
		}
		value, ok := configMap.BinaryData[key]
		return value, ok, nil
	}
}
