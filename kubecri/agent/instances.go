package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"

	v0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// errRaced is returned when the Instance is no longer as it was read.
var errRaced = errors.New("somebody else changed it first")

// races paces the nodes that add themselves to one Instance at the same time.
var races = wait.Backoff{Duration: 10 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 6}

func keyOf(configuration *v0.Configuration, instance string) types.NamespacedName {
	return types.NamespacedName{Namespace: configuration.Namespace, Name: instance}
}

// reconcileInstance makes one Instance what it should be. It trusts the cache
// first, which a write that is based on it finds out when it is stale.
func (a *Agent) reconcileInstance(ctx context.Context, key types.NamespacedName) error {
	existing, err := a.config.Instances.Lister().Instances(key.Namespace).Get(key.Name)
	stale := false
	return retry.OnError(races, func(err error) bool { return errors.Is(err, errRaced) }, func() error {
		if stale {
			existing, err = a.config.Client.AkriV0().Instances(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
		}
		if apierrors.IsNotFound(err) {
			existing, err = nil, nil
		}
		if err != nil {
			return fmt.Errorf("read Instance %s: %w", key, err)
		}
		stale = true
		return a.apply(ctx, key, existing)
	})
}

// apply does at most one write.
func (a *Agent) apply(ctx context.Context, key types.NamespacedName, existing *v0.Instance) error {
	if existing != nil && existing.DeletionTimestamp != nil {
		return nil // made anew once it is gone, if need be
	}
	switch s := a.standingOf(key, existing); {
	case s.device != nil:
		return a.applyDevice(ctx, existing, s)
	case existing == nil || s.waiting:
		return nil
	default:
		return a.withdraw(ctx, existing, s)
	}
}

// standing is what is known on this node of an Instance's device. It is read at
// one time: between two, a first report might come, and what it does report
// would be taken for gone.
type standing struct {
	configuration *v0.Configuration // the one discovered under the name, if any
	device        *found            // set when the device is there
	waiting       bool              // not known before the handler reports
	discovered    bool              // configuration is the Instance's own
}

func (a *Agent) standingOf(key types.NamespacedName, existing *v0.Instance) standing {
	a.mu.RLock()
	defer a.mu.RUnlock()
	if k := a.kinds[configurationOf(key.Name)]; k != nil && k.configuration.Namespace == key.Namespace {
		if device, ok := k.devices[key.Name]; ok {
			return standing{configuration: k.configuration, device: &device}
		}
	}
	if existing == nil {
		return standing{}
	}
	k := a.kinds[existing.Spec.ConfigurationName]
	if k == nil {
		return standing{}
	}
	discovered := k.configuration.Namespace == key.Namespace
	return standing{configuration: k.configuration, discovered: discovered, waiting: discovered && !k.reported}
}

// applyDevice makes the Instance of a device that is there what it should be.
func (a *Agent) applyDevice(ctx context.Context, existing *v0.Instance, s standing) error {
	want := desired(existing, s.configuration, *s.device, a.config.NodeName)
	switch {
	case existing == nil:
		return a.create(ctx, want)
	case existing.Spec.ConfigurationName != want.Spec.ConfigurationName:
		return a.remove(ctx, existing, "it names another Configuration, which cannot be changed")
	case apiequality.Semantic.DeepEqual(existing, want):
		return nil
	}
	return a.update(ctx, want, "it was not as it should be")
}

// withdraw takes this node out of the Instance of a device that it does not see.
func (a *Agent) withdraw(ctx context.Context, existing *v0.Instance, s standing) error {
	want := withdrawn(existing, a.config.NodeName)
	if want == existing {
		return nil
	}
	reason := "the discovery handler does not see the device on this node"
	if !s.discovered {
		var err error
		if reason, err = a.undiscovered(ctx, existing, s); err != nil || reason == "" {
			return err
		}
	}
	if want == nil {
		return a.remove(ctx, existing, reason)
	}
	return a.update(ctx, want, reason)
}

// undiscovered says why the Instance's Configuration is not discovered; "" when
// discovery is only about to start.
func (a *Agent) undiscovered(ctx context.Context, instance *v0.Instance, s standing) (string, error) {
	namespace, name := instance.Namespace, instance.Spec.ConfigurationName
	configuration, err := a.config.Configurations.Lister().Configurations(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		// Claims may go with the Instance, so a cache alone is not enough.
		configuration, err = a.config.Client.AkriV0().Configurations(namespace).Get(ctx, name, metav1.GetOptions{})
	}
	switch {
	case apierrors.IsNotFound(err):
		return "its Configuration does not exist", nil
	case err != nil:
		return "", fmt.Errorf("read Configuration %s/%s of Instance %s: %w", namespace, name, klog.KObj(instance), err)
	case !configuration.MayOwnName():
		return "its Configuration is being deleted", nil
	case s.configuration != nil:
		return "its Configuration gives way to an older one of that name", nil
	}
	return "", nil
}

func (a *Agent) create(ctx context.Context, instance *v0.Instance) error {
	_, err := a.config.Client.AkriV0().Instances(instance.Namespace).Create(ctx, instance, metav1.CreateOptions{})
	if err != nil {
		return writeError("create", instance, err, apierrors.IsAlreadyExists(err))
	}
	klog.FromContext(ctx).Info("Created an Instance", "instance", klog.KObj(instance), "capacity", instance.Spec.Capacity)
	return nil
}

// update relies on the resourceVersion to lose no claim or node.
func (a *Agent) update(ctx context.Context, instance *v0.Instance, reason string) error {
	_, err := a.config.Client.AkriV0().Instances(instance.Namespace).Update(ctx, instance, metav1.UpdateOptions{})
	if err != nil {
		return writeError("update", instance, err, apierrors.IsConflict(err) || apierrors.IsNotFound(err))
	}
	klog.FromContext(ctx).Info("Updated an Instance", "instance", klog.KObj(instance), "reason", reason,
		"capacity", instance.Spec.Capacity, "nodes", len(instance.Spec.Nodes))
	return nil
}

// remove deletes exactly what was read: not an Instance that another node has
// joined since.
func (a *Agent) remove(ctx context.Context, instance *v0.Instance, reason string) error {
	err := a.config.Client.AkriV0().Instances(instance.Namespace).Delete(ctx, instance.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &instance.UID, ResourceVersion: &instance.ResourceVersion},
	})
	if err != nil {
		return writeError("delete", instance, err, apierrors.IsConflict(err) || apierrors.IsNotFound(err))
	}
	klog.FromContext(ctx).Info("Deleted an Instance", "instance", klog.KObj(instance), "reason", reason)
	return nil
}

func writeError(verb string, instance *v0.Instance, err error, raced bool) error {
	if raced {
		return fmt.Errorf("%s Instance %s: %w: %w", verb, klog.KObj(instance), errRaced, err)
	}
	return fmt.Errorf("%s Instance %s: %w", verb, klog.KObj(instance), err)
}
