package dra

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kubeslot/kubeslot/controller/inventory"
	"github.com/kubeslot/kubeslot/controller/watch"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// classAgain is when a DeviceClass is looked at again: somebody may change or delete it, and DeviceClasses
// are not watched. With a problem it is looked at sooner.
const classAgain, problemAgain = 5 * time.Minute, 10 * time.Second

// ClassConfig is what Classes need; all of it is required.
type ClassConfig struct {
	Client client.Client
	// Live reads DeviceClasses and Nodes from the API server.
	Live      client.Reader
	Inventory *inventory.Inventory
	// Version returns the API server's version; nil when it is not known.
	Version func() *version.Version
	// Changed is called with each Configuration of which Problem returns something else.
	Changed func(types.NamespacedName)
}

// Classes see to the DeviceClass of each Configuration, one at a time. While no Configuration has
// spec.allocator DRA they make one request in all.
type Classes struct {
	ClassConfig

	mu     sync.Mutex
	listed bool // what an earlier process left is known
	// made are the Configurations that have or may have a DeviceClass, each with what is wrong with it.
	made map[string]string
}

var _ reconcile.Reconciler = &Classes{}

// NewClasses makes Classes.
func NewClasses(c ClassConfig) *Classes {
	return &Classes{ClassConfig: c, made: map[string]string{}}
}

// class is the DeviceClass of a Configuration; nil for none. A Configuration keeps it while DRA gives its
// devices. With uniqueDevices the class has no extended resource, whose claims could not demand that the
// devices of a container are different ones; and none while slots are held, which nodes advertise under its name.
func class(c *akriv0.Configuration, server *version.Version) *resourceapi.DeviceClass {
	if c == nil || c.GivesSlots() {
		return nil
	}
	made := &resourceapi.DeviceClass{}
	made.Name = v1alpha1.DeviceClassName(c.Name)
	made.Labels = map[string]string{v1alpha1.ConfigurationLabel: c.Name}
	made.Annotations = NamespaceAnnotations(c)
	made.Spec.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: fmt.Sprintf(
		"device.driver == '%[1]s' && device.attributes['%[1]s'].%[2]s == '%[3]s'",
		v1alpha1.DRADriver, v1alpha1.DRAConfiguration, c.Name)}}}
	if c.Spec.Unique() == "" && c.HandedOver() && server != nil && server.AtLeast(extendedResources) {
		made.Spec.ExtendedResourceName = new(akriv0.GroupName + "/" + c.Name)
	}
	return made
}

// Reconcile sees to the DeviceClass of a Configuration's name, whatever its namespace. The first call, for which
// there need be no Configuration, also deletes what an earlier process has left.
func (r *Classes) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	if err := r.list(ctx); err != nil {
		return reconcile.Result{}, err
	}
	name := request.Name
	c := r.Inventory.InForce(name)
	want := class(c, r.Version())
	r.mu.Lock()
	before, has := r.made[name]
	r.mu.Unlock()
	if want == nil && !has {
		return reconcile.Result{}, nil
	}
	r.note(c, name, true, before) // from now on it may have one, also if an answer is lost
	problem, err := r.write(ctx, name, want)
	if err != nil {
		return reconcile.Result{}, err
	}
	switch r.note(c, name, want != nil, problem); {
	case want == nil:
		return reconcile.Result{}, nil
	case problem != "":
		return reconcile.Result{RequeueAfter: problemAgain}, nil
	}
	return reconcile.Result{RequeueAfter: classAgain}, nil
}

// list looks, once, for the DeviceClasses that an earlier process has left.
func (r *Classes) list(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.listed {
		return nil
	}
	left := &resourceapi.DeviceClassList{}
	err := r.Live.List(ctx, left, client.HasLabels{v1alpha1.ConfigurationLabel})
	if err != nil && !apierrors.IsNotFound(err) { // no resource.k8s.io/v1
		return fmt.Errorf("list the DeviceClasses of Configurations: %w", err)
	}
	for i := range left.Items {
		name := left.Items[i].Labels[v1alpha1.ConfigurationLabel]
		if !isOurs(&left.Items[i], name) {
			continue
		}
		if r.made[name] = ""; class(r.Inventory.InForce(name), nil) != nil {
			continue
		}
		if _, err := r.write(ctx, name, nil); err != nil {
			return err
		}
		delete(r.made, name)
	}
	r.listed = true
	return nil
}

// isOurs reports whether the DeviceClass is one that a controller made for the Configuration.
func isOurs(c *resourceapi.DeviceClass, configuration string) bool {
	return c.Name == v1alpha1.DeviceClassName(configuration) &&
		c.Labels[v1alpha1.ConfigurationLabel] == configuration
}

// write brings the DeviceClass of a Configuration up to date; want is nil for none. It returns what keeps it
// from that until somebody changes something.
func (r *Classes) write(ctx context.Context, configuration string, want *resourceapi.DeviceClass) (string, error) {
	key := types.NamespacedName{Name: v1alpha1.DeviceClassName(configuration)}
	have, err := watch.Get(ctx, r.Live, key, &resourceapi.DeviceClass{})
	problem := ""
	if err == nil && want != nil && want.Spec.ExtendedResourceName != nil &&
		(have == nil || have.Spec.ExtendedResourceName == nil) {
		problem, err = r.advertised(ctx, corev1.ResourceName(*want.Spec.ExtendedResourceName))
		if problem != "" {
			want.Spec.ExtendedResourceName = nil
		}
	}
	switch {
	case err != nil:
		return "", fmt.Errorf("read DeviceClass %s: %w", key.Name, err)
	case want == nil && (have == nil || !isOurs(have, configuration)):
		return "", nil
	case have != nil && !isOurs(have, configuration):
		return fmt.Sprintf("DeviceClass %s is not the controller's, since its label %s is not %s: delete it, or "+
			"add the label to have the controller change it", key.Name, v1alpha1.ConfigurationLabel, configuration), nil
	case want == nil:
		err = r.Client.Delete(ctx, have, client.Preconditions{UID: &have.UID})
		err = client.IgnoreNotFound(err)
	case have == nil:
		err = r.Client.Create(ctx, want.DeepCopy())
	default:
		changed := have.DeepCopy()
		changed.Spec, changed.Annotations = want.Spec, annotations(have.Annotations, want.Annotations)
		if apiequality.Semantic.DeepEqual(have, changed) {
			return problem, nil
		}
		err = r.Client.Update(ctx, changed)
	}
	if apierrors.IsNotFound(err) {
		return notServed, nil
	}
	if err != nil {
		return "", fmt.Errorf("write DeviceClass %s: %w", key.Name, err)
	}
	klog.FromContext(ctx).V(2).Info("Wrote a DeviceClass", "deviceClass", key.Name, "deleted", want == nil)
	return problem, nil
}

// advertised says which node advertises slots of the resource; "" for none. Schedulers make claims for an extended
// resource only where the node does not have it: of one that kubecri has not withdrawn yet a pod would
// be given neither a slot nor a claim.
func (r *Classes) advertised(ctx context.Context, resource corev1.ResourceName) (string, error) {
	nodes := &corev1.NodeList{}
	for {
		if err := r.Live.List(ctx, nodes, client.Limit(nodesAtOnce), client.Continue(nodes.Continue)); err != nil {
			return "", fmt.Errorf("list the Nodes that advertise %s: %w", resource, err)
		}
		for i := range nodes.Items {
			if n := nodes.Items[i].Status.Allocatable[resource]; !n.IsZero() {
				return fmt.Sprintf("node %s advertises %s %s still, so that pods which request it wait: kubecri "+
					"withdraws it within a minute; if it does not run there, start it, or delete the node",
					nodes.Items[i].Name, &n, resource), nil
			}
		}
		if nodes.Continue == "" {
			return "", nil
		}
	}
}

// nodesAtOnce is how many Nodes one request lists.
const nodesAtOnce = 500

// annotations are what the object has, with the controller's own as they should be.
func annotations(have, want map[string]string) map[string]string {
	all := map[string]string{}
	maps.Copy(all, have)
	delete(all, allowedNamespaces)
	delete(all, allowedNamespaceLabels)
	maps.Copy(all, want)
	return all
}

// note remembers whether a Configuration has a DeviceClass, and what is wrong with it.
func (r *Classes) note(c *akriv0.Configuration, name string, made bool, problem string) {
	r.mu.Lock()
	before := r.made[name]
	if r.made[name] = problem; !made {
		delete(r.made, name)
	}
	r.mu.Unlock()
	if before != problem && c != nil {
		r.Changed(types.NamespacedName{Namespace: c.Namespace, Name: c.Name})
	}
}

// Problem says what is wrong with a Configuration's DeviceClass; "" for nothing.
func (r *Classes) Problem(configuration string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.made[configuration]
}
