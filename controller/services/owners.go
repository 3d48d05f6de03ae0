package services

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubeslot/kubeslot/controller/naming"
	"github.com/kubeslot/kubeslot/controller/watch"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// OfInstances makes a Reconciler of the Services of Instances.
func OfInstances(c Config) *Reconciler {
	return newReconciler(c, findInstance)
}

// OfConfigurations makes a Reconciler of the Services of Configurations.
func OfConfigurations(c Config) *Reconciler {
	return newReconciler(c, findConfiguration)
}

func newReconciler(c Config, find finder) *Reconciler {
	return &Reconciler{Config: c, find: find, reported: map[types.NamespacedName]string{},
		looked: map[types.NamespacedName]time.Time{}}
}

func findInstance(ctx context.Context, c *Config, key types.NamespacedName) (*owner, error) {
	i, err := watch.Get(ctx, c.Client, key, &akriv0.Instance{})
	if err != nil || i == nil || i.DeletionTimestamp != nil {
		return nil, err
	}
	configuration := c.Inventory.Device(key.Name).Configuration
	if configuration == nil || configuration.Namespace != key.Namespace {
		return nil, nil
	}
	return &owner{
		key: key, object: i, reference: naming.OwnedBy("Instance", i),
		label: naming.Instance,
		field: "spec.instanceServiceSpec", raw: wanted(configuration, configuration.Spec.InstanceServiceSpec),
		expected: func() bool {
			expected, known := c.Brokers.Expected(key)
			return expected || !known
		},
	}, nil
}

func findConfiguration(ctx context.Context, c *Config, key types.NamespacedName) (*owner, error) {
	configuration, err := watch.Get(ctx, c.Client, key, &akriv0.Configuration{})
	if err != nil || configuration == nil || configuration.DeletionTimestamp != nil {
		return nil, err
	}
	return &owner{
		key: key, object: configuration, reference: naming.OwnedBy("Configuration", configuration),
		label: naming.Configuration,
		field: "spec.configurationServiceSpec", raw: wanted(configuration, configuration.Spec.ConfigurationServiceSpec),
		expected: func() bool {
			sum := c.Brokers.Sum(key)
			return sum.Expected > 0 ||
				// Some have not been looked at.
				sum.Instances < c.Inventory.Summary(key).Instances-c.Instances(key).Withheld
		},
	}, nil
}

// wanted returns a Service's spec if there is one, and brokers that it could be for.
func wanted(c *akriv0.Configuration, raw *runtime.RawExtension) *runtime.RawExtension {
	if !c.Spec.HasBroker() || !akriv0.IsSet(raw) {
		return nil
	}
	return raw
}

// made lists the Services or pods with the owner's label. There may be thousands of pods: they are only looked at.
func (o *owner) made(ctx context.Context, c *Config, list client.ObjectList) error {
	of := client.MatchingFields{o.label: o.key.Name}
	return c.Made.List(ctx, list, client.InNamespace(o.key.Namespace), of, client.UnsafeDisableDeepCopy)
}
