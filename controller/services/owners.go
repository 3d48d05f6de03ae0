package services

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubeslot/kubeslot/controller/brokers"
	"github.com/kubeslot/kubeslot/controller/naming"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// OfInstances makes a Reconciler of the Services of Instances.
func OfInstances(c Config) *Reconciler {
	return &Reconciler{Config: c, find: findInstance, told: map[types.NamespacedName]string{}}
}

// OfConfigurations makes a Reconciler of the Services of Configurations.
func OfConfigurations(c Config) *Reconciler {
	return &Reconciler{Config: c, find: findConfiguration, told: map[types.NamespacedName]string{}}
}

// Index has the cache find Services by their labels.
func Index(ctx context.Context, in client.FieldIndexer) error {
	for field, label := range map[string]string{brokers.InstanceIndex: naming.Instance, brokers.ConfigurationIndex: naming.Configuration} {
		if err := in.IndexField(ctx, &corev1.Service{}, field, brokers.ByLabel(label)); err != nil {
			return fmt.Errorf("index Services by label %s: %w", label, err)
		}
	}
	return nil
}

func findInstance(ctx context.Context, c *Config, key types.NamespacedName) (*owner, error) {
	i := &akriv0.Instance{}
	if err := c.Client.Get(ctx, key, i); err != nil || i.DeletionTimestamp != nil {
		return nil, client.IgnoreNotFound(err)
	}
	configuration := c.Inventory.Device(key.Name).Configuration
	if configuration == nil || configuration.Namespace != key.Namespace {
		return nil, nil
	}
	expected, known := c.Brokers.Expected(key)
	return &owner{
		name: i.Name, object: i, reference: ownedBy("Instance", i),
		label: naming.Instance, index: brokers.InstanceIndex,
		field: "spec.instanceServiceSpec", raw: wanted(configuration, configuration.Spec.InstanceServiceSpec),
		expected: expected || !known,
	}, nil
}

func findConfiguration(ctx context.Context, c *Config, key types.NamespacedName) (*owner, error) {
	configuration := &akriv0.Configuration{}
	if err := c.Client.Get(ctx, key, configuration); apierrors.IsNotFound(err) || configuration.DeletionTimestamp != nil {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	summary, sum := c.Inventory.Summary(key), c.Brokers.Sum(key)
	return &owner{
		name: key.Name, object: configuration, reference: ownedBy("Configuration", configuration),
		label: naming.Configuration, index: brokers.ConfigurationIndex,
		field: "spec.configurationServiceSpec", raw: wanted(configuration, configuration.Spec.ConfigurationServiceSpec),
		expected: sum.Expected > 0 || sum.Instances < summary.Instances, // some have not been looked at
	}, nil
}

// wanted returns a Service's spec if there is one, and brokers that it could be for.
func wanted(c *akriv0.Configuration, raw *runtime.RawExtension) *runtime.RawExtension {
	if b := c.Spec.BrokerSpec; b == nil || !isSet(b.BrokerPodSpec) && !isSet(b.BrokerJobSpec) || !isSet(raw) {
		return nil
	}
	return raw
}

func isSet(e *runtime.RawExtension) bool {
	return e != nil && len(e.Raw) > 0 && string(e.Raw) != "null"
}

func ownedBy(kind string, o metav1.Object) metav1.OwnerReference {
	controller := true
	return metav1.OwnerReference{APIVersion: akriv0.SchemeGroupVersion.String(), Kind: kind, Name: o.GetName(), UID: o.GetUID(), Controller: &controller}
}

// read lists the Services and the pods with the owner's label.
func (o *owner) read(ctx context.Context, c *Config, key types.NamespacedName) ([]*corev1.Service, []*corev1.Pod, error) {
	of := []client.ListOption{client.InNamespace(key.Namespace), client.MatchingFields{o.index: key.Name}}
	var services corev1.ServiceList
	if err := c.Made.List(ctx, &services, of...); err != nil {
		return nil, nil, err
	}
	var pods corev1.PodList // there may be thousands: they are only looked at
	if err := c.Made.List(ctx, &pods, append(of, client.UnsafeDisableDeepCopy)...); err != nil {
		return nil, nil, err
	}
	s, p := make([]*corev1.Service, len(services.Items)), make([]*corev1.Pod, len(pods.Items))
	for i := range services.Items {
		s[i] = &services.Items[i]
	}
	for i := range pods.Items {
		p[i] = &pods.Items[i]
	}
	return s, p, nil
}
