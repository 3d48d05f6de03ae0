package dra

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kubeslot/kubeslot/controller/inventory"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// classAgain is when DeviceClasses are looked at again: somebody may change or delete one, and they are not watched.
// With a problem, or while the API server's version is not known, they are looked at sooner.
const classAgain, problemAgain = 5 * time.Minute, 10 * time.Second

// ClassConfig is what Classes need; all of it is required.
type ClassConfig struct {
	Client client.Client
	// Live reads DeviceClasses and Nodes from the API server.
	Live      client.Reader
	Inventory *inventory.Inventory
	// Version returns the API server's version; nil when it is not known.
	Version func() *version.Version
	// Changed is called with the name of each Configuration of which Problem returns something else.
	Changed func(configuration string)
	Clock   clock.PassiveClock
}

// Classes see to the DeviceClasses of all Configurations at once. While no Configuration has spec.allocator DRA they
// make one request in all.
type Classes struct {
	ClassConfig
	problems *problems

	// seen are the DeviceClasses as they were when last looked at, without a problem; nil for never.
	seen   map[string]*resourceapi.DeviceClass
	seenAt time.Time
}

var _ reconcile.Reconciler = &Classes{}

// NewClasses makes Classes.
func NewClasses(c ClassConfig) *Classes {
	return &Classes{ClassConfig: c, problems: newProblems(c.Changed)}
}

// class is the DeviceClass of a Configuration, which keeps it while DRA gives its devices. With uniqueDevices the class
// has no extended resource, whose claims could not demand that the devices of a container are different ones; and none
// while slots are held, which nodes advertise under its name.
func class(c *akriv0.Configuration, server *version.Version) *resourceapi.DeviceClass {
	made := &resourceapi.DeviceClass{}
	made.Name = v1alpha1.DeviceClassName(c.Name)
	made.Labels = map[string]string{v1alpha1.ConfigurationLabel: c.Name}
	made.Annotations = NamespaceAnnotations(c)
	made.Spec.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: fmt.Sprintf(
		"device.driver == '%[1]s' && device.attributes['%[1]s'].%[2]s == '%[3]s'",
		v1alpha1.DRADriver, v1alpha1.DRAConfiguration, c.Name)}}}
	if c.Spec.Unique() == "" && c.HandedOver() && server.AtLeast(extendedResources) {
		made.Spec.ExtendedResourceName = new(akriv0.GroupName + "/" + c.Name)
	}
	return made
}

// Reconcile sees to all DeviceClasses, whatever the request. It is not called twice at once.
func (r *Classes) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	want := map[string]*resourceapi.DeviceClass{} // by Configuration
	all, server := r.Inventory.OfDRA(), r.Version()
	if server == nil && len(all) > 0 { // a DeviceClass keeps its extended resource, or gets none yet
		return reconcile.Result{RequeueAfter: problemAgain}, nil
	}
	for _, c := range all {
		want[c.Name] = class(c, server)
	}
	left := classAgain - r.Clock.Since(r.seenAt)
	if r.seen == nil || left <= 0 || !apiequality.Semantic.DeepEqual(r.seen, want) {
		seen, err := r.write(ctx, want)
		if err != nil {
			r.seen = nil
			return reconcile.Result{}, err
		}
		if r.seen, r.seenAt, left = nil, r.Clock.Now(), problemAgain; seen {
			r.seen, left = want, classAgain
		}
	}
	if len(want) == 0 {
		return reconcile.Result{}, nil
	}
	return reconcile.Result{RequeueAfter: left}, nil
}

// write brings all DeviceClasses up to date, and reports whether there is no problem.
func (r *Classes) write(ctx context.Context, want map[string]*resourceapi.DeviceClass) (fine bool, err error) {
	have := &resourceapi.DeviceClassList{}
	err = r.Live.List(ctx, have, client.HasLabels{v1alpha1.ConfigurationLabel})
	isServed := !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err)
	if err != nil && isServed {
		return false, fmt.Errorf("list the DeviceClasses of Configurations: %w", err)
	}
	ours := map[string]*resourceapi.DeviceClass{}
	for i := range have.Items {
		c := &have.Items[i]
		if name := c.Labels[v1alpha1.ConfigurationLabel]; c.Name == v1alpha1.DeviceClassName(name) {
			ours[name] = c
		}
	}
	found := map[string]string{} // problems
	var errs []error
	for name, class := range want {
		problem, err := notServed, error(nil)
		if isServed {
			problem, err = r.writeOne(ctx, ours[name], class.DeepCopy())
		}
		if errs = append(errs, err); problem != "" {
			found[class.Name] = problem
		}
	}
	for name, class := range ours {
		if want[name] == nil {
			err := r.Client.Delete(ctx, class, client.Preconditions{UID: &class.UID})
			errs = append(errs, client.IgnoreNotFound(err))
		}
	}
	r.problems.replace(found)
	return len(found) == 0, errors.Join(errs...)
}

// writeOne brings a DeviceClass up to date; have is nil where the controller has made none. It returns what keeps it
// from that until somebody changes something.
func (r *Classes) writeOne(ctx context.Context, have, want *resourceapi.DeviceClass) (problem string, err error) {
	if want.Spec.ExtendedResourceName != nil && (have == nil || have.Spec.ExtendedResourceName == nil) {
		problem, err = r.advertised(ctx, corev1.ResourceName(*want.Spec.ExtendedResourceName))
		if problem != "" {
			want.Spec.ExtendedResourceName = nil
		}
	}
	switch {
	case err != nil:
		return "", err
	case have == nil:
		if err = r.Client.Create(ctx, want); apierrors.IsAlreadyExists(err) {
			return fmt.Sprintf("DeviceClass %s is not the controller's, since it lacks the label %s=%s: delete it, or "+
				"add the label to have the controller change it", want.Name, v1alpha1.ConfigurationLabel,
				want.Labels[v1alpha1.ConfigurationLabel]), nil
		}
	default:
		changed := have.DeepCopy()
		changed.Spec, changed.Annotations = want.Spec, annotations(have.Annotations, want.Annotations)
		if apiequality.Semantic.DeepEqual(have, changed) {
			return problem, nil
		}
		err = r.Client.Update(ctx, changed)
	}
	if err != nil {
		return "", fmt.Errorf("write DeviceClass %s: %w", want.Name, err)
	}
	klog.FromContext(ctx).V(2).Info("Wrote a DeviceClass", "deviceClass", want.Name)
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

// Problem says what is wrong with a Configuration's DeviceClass; "" for nothing.
func (r *Classes) Problem(configuration string) string {
	_, _, problem := r.problems.first(configuration)
	return problem
}
