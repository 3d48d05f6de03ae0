// Package source reads the objects that a view is made of, once or continuously, with
// the user's own rights: what may not be listed in the whole cluster is listed in one
// namespace, and what may not be listed at all is left out, and named. It writes nothing: Release
// alone deletes a claim.
package source

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"

	"github.com/kubeslot/kubeslot/kubectl-kubeslot/view"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/client/clientset/versioned"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// Requests a second, and at once, to the API server.
const qps, burst = 50, 100

// pageSize is how many objects are asked for at once, as by kubectl. Of their metadata alone, four times as many
// are as many bytes.
const pageSize, metadataPageSize = 500, 2000

// Source is where objects are read from. Safe for concurrent use.
type Source struct {
	kube      kubernetes.Interface
	client    versioned.Interface
	objects   dynamic.Interface
	metadata  metadata.Interface
	namespace string
}

// New makes a Source of a connection. The namespace is where objects are read that may
// not be read in the whole cluster.
func New(config *rest.Config, namespace string) (*Source, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = qps, burst
	if config.UserAgent == "" {
		config.UserAgent = "kubectl-kubeslot"
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	client, err := versioned.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	names, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return For(kube, client, objects, names, namespace), nil
}

// For makes a Source of clients; objects is for Cluster, and metadata for List and Names, nil where those are not
// asked.
func For(kube kubernetes.Interface, client versioned.Interface, objects dynamic.Interface,
	metadata metadata.Interface, namespace string) *Source {
	return &Source{kube: kube, client: client, objects: objects, metadata: metadata, namespace: namespace}
}

// kind is how one kind of objects is read. Kinds without a namespace ignore theirs.
type kind struct {
	resource   string
	namespaced bool
	needed     bool // without it there is nothing to show
	optional   bool // without it less is shown, and it is not said: not each API server has it, nor user may list it
	object     runtime.Object
	list       func(ctx context.Context, namespace string, options metav1.ListOptions) (runtime.Object, error)
	watch      func(ctx context.Context, namespace string, options metav1.ListOptions) (watch.Interface, error)
	// enter puts objects of the kind into the set.
	enter func(o *view.Objects, items []runtime.Object)
}

// kinds are all that a view is made of; List knows their order.
func (s *Source) kinds() []kind {
	akri, slots, core, dra := s.client.AkriV0(), s.client.KubeslotV1alpha1(), s.kube.CoreV1(), s.kube.ResourceV1()
	return []kind{
		kindOf(kind{resource: "configurations.akri.sh", namespaced: true, needed: true}, akri.Configurations,
			func(o *view.Objects) *[]akriv0.Configuration { return &o.Configurations }),
		kindOf(kind{resource: "instances.akri.sh", namespaced: true, needed: true}, akri.Instances,
			func(o *view.Objects) *[]akriv0.Instance { return &o.Instances }),
		kindOf(kind{resource: "deviceslices.kubeslot.io"}, unscoped(slots.DeviceSlices()),
			func(o *view.Objects) *[]v1alpha1.DeviceSlice { return &o.Slices }),
		kindOf(kind{resource: "pods", namespaced: true}, core.Pods,
			func(o *view.Objects) *[]corev1.Pod { return &o.Pods }),
		kindOf(kind{resource: "nodes"}, unscoped(core.Nodes()),
			func(o *view.Objects) *[]corev1.Node { return &o.Nodes }),
		kindOf(kind{resource: "slotclaims.kubeslot.io"}, unscoped(slots.SlotClaims()),
			func(o *view.Objects) *[]v1alpha1.SlotClaim { return &o.Claims }),
		kindOf(kind{resource: "resourceclaims.resource.k8s.io", namespaced: true, optional: true}, dra.ResourceClaims,
			func(o *view.Objects) *[]resourceapi.ResourceClaim { return &o.ResourceClaims }),
		kindOf(kind{resource: "deviceclasses.resource.k8s.io", optional: true}, unscoped(dra.DeviceClasses()),
			func(o *view.Objects) *[]resourceapi.DeviceClass { return &o.DeviceClasses }),
	}
}

// reader is a client of a kind's objects.
type reader[L runtime.Object] interface {
	List(ctx context.Context, options metav1.ListOptions) (L, error)
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
}

// kindOf is the kind of the objects that are read from a namespace's reader, and entered where to says.
func kindOf[T any, L runtime.Object, R reader[L]](
	k kind, from func(namespace string) R, to func(*view.Objects) *[]T,
) kind {
	k.object = any(new(T)).(runtime.Object)
	k.list = func(ctx context.Context, namespace string, options metav1.ListOptions) (runtime.Object, error) {
		return from(namespace).List(ctx, options)
	}
	k.watch = func(ctx context.Context, namespace string, options metav1.ListOptions) (watch.Interface, error) {
		return from(namespace).Watch(ctx, options)
	}
	k.enter = func(o *view.Objects, items []runtime.Object) { *to(o) = values[T](items) }
	return k
}

// unscoped is the reader of a kind without namespaces.
func unscoped[R any](reader R) func(namespace string) R { return func(string) R { return reader } }

// values copies objects, which are *T.
func values[T any](items []runtime.Object) []T {
	all := make([]T, 0, len(items))
	for _, item := range items {
		if value, ok := any(item).(*T); ok {
			all = append(all, *value)
		}
	}
	return all
}

// List reads the objects that the user may list, of pods and nodes those that are wanted. The second
// result names what is missing, such as nodes, or what is of one namespace only, such as "pods of
// other namespaces". Without Configurations and Instances it is an error.
func (s *Source) List(ctx context.Context, wanted Wanted) (view.Objects, []string, error) {
	kinds := s.kinds()
	answers, errs := make([][]runtime.Object, len(kinds)), make([]error, len(kinds))
	scopes := make([]scope, len(kinds))
	read := func(i int) { answers[i], scopes[i], errs[i] = s.read(ctx, &kinds[i]) }
	const first, pods, nodes, last = 0, 3, 4, 5 // claims later than pods: a container's claims are there before it runs
	if read(first); errs[first] != nil {
		return view.Objects{}, nil, errs[first]
	}
	wanted.NoNodes = wanted.NoNodes && !slices.ContainsFunc(values[akriv0.Configuration](answers[first]),
		func(c akriv0.Configuration) bool { return c.Spec.Discovery != nil })
	var group sync.WaitGroup
	var find finder
	for i := first + 1; i < last; i++ {
		group.Go(func() {
			switch {
			case i == pods:
				answers[i], find, scopes[i], errs[i] = s.pods(ctx, &kinds[i], wanted)
			case i != nodes || !wanted.NoNodes:
				read(i)
			}
		})
	}
	group.Wait()
	read(last)
	byDRA := usesDRA(values[akriv0.Configuration](answers[first]), values[v1alpha1.SlotClaim](answers[last]))
	for i := last + 1; i < len(kinds); i++ {
		if scopes[i] = nowhere; byDRA {
			read(i)
		}
	}
	if err := firstOf(errs); err != nil {
		return view.Objects{}, nil, err
	}
	if find != nil {
		known, unclear := find(values[v1alpha1.SlotClaim](answers[last]))
		var err error
		if answers[pods], err = s.withHolders(ctx, &kinds[pods], answers[pods], known, unclear); err != nil {
			return view.Objects{}, nil, err
		}
	}
	var objects view.Objects
	for i := range kinds {
		if scopes[i] != nowhere {
			kinds[i].enter(&objects, answers[i])
		}
	}
	noteScopes(&objects, kinds, scopes, s.namespace)
	return objects, missing(kinds, scopes), nil
}

// usesDRA reports whether DRA gives devices, or ResourceClaims have some from before.
func usesDRA(configurations []akriv0.Configuration, claims []v1alpha1.SlotClaim) bool {
	return slices.ContainsFunc(configurations, func(c akriv0.Configuration) bool { return !c.GivesSlots() }) ||
		slices.ContainsFunc(claims, func(c v1alpha1.SlotClaim) bool { return c.Spec.ByDRA() })
}

// firstOf prefers an error that is not that the context is done, which others cause.
func firstOf(errs []error) error {
	at := slices.IndexFunc(errs, func(err error) bool { return err != nil && !errors.Is(err, context.Canceled) })
	if at >= 0 {
		return errs[at]
	}
	return errors.Join(errs...)
}

// scope is how far a kind may be read.
type scope int

const (
	everywhere scope = iota
	oneNamespace
	nowhere
)

// noteScopes notes of which namespaces the objects are.
func noteScopes(o *view.Objects, kinds []kind, scopes []scope, own string) {
	o.PodsOf = namespaceOf("pods", kinds, scopes, own)
	o.ConfigurationsOf = namespaceOf("configurations.akri.sh", kinds, scopes, own)
	o.ResourceClaimsOf = namespaceOf("resourceclaims.resource.k8s.io", kinds, scopes, own)
}

// namespaceOf is the one in which the resource's objects are read, "" for all; own is the user's.
func namespaceOf(resource string, kinds []kind, scopes []scope, own string) string {
	for i := range kinds {
		if kinds[i].resource == resource && scopes[i] != everywhere {
			return own
		}
	}
	return metav1.NamespaceAll
}

func missing(kinds []kind, scopes []scope) []string {
	var all []string
	for i := range kinds {
		if kinds[i].optional {
			continue
		}
		switch scopes[i] {
		case oneNamespace:
			all = append(all, kinds[i].resource+" of other namespaces")
		case nowhere:
			all = append(all, kinds[i].resource)
		}
	}
	return all
}

// read reads all objects of a kind, as far as the user may.
func (s *Source) read(ctx context.Context, k *kind) (items []runtime.Object, reach scope, err error) {
	reach, err = s.tryList(k, func(namespace string) (err error) {
		items, err = k.pages(ctx, namespace, metav1.ListOptions{})
		return err
	})
	return items, reach, err
}

// tryList calls list for all namespaces or, where the user may not list those, for theirs, and says which
// it was. nowhere is no error of a kind that is left out.
func (s *Source) tryList(k *kind, list func(namespace string) error) (reach scope, err error) {
	err = list(metav1.NamespaceAll)
	if apierrors.IsForbidden(err) && k.namespaced {
		reach, err = oneNamespace, list(s.namespace)
	}
	if apierrors.IsForbidden(err) && !k.needed || apierrors.IsNotFound(err) && k.optional {
		return nowhere, nil
	}
	return reach, explain(k.resource, err)
}

// NotInstalledError names a resource that the API server does not have.
type NotInstalledError string

// NoConfigurations is the error of a cluster that has nothing of Kubeslot, nor of Akri.
const NoConfigurations NotInstalledError = "configurations.akri.sh"

func (e NotInstalledError) Error() string {
	return fmt.Sprintf("the cluster has no %s: is Kubeslot installed there? (kubectl apply -k deploy/)", string(e))
}

func explain(resource string, err error) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsNotFound(err):
		return NotInstalledError(resource)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("list %s: %w; the ClusterRole view gives the permission", resource, err)
	}
	return fmt.Errorf("list %s: %w", resource, err)
}

// pages lists objects of the kind page by page.
func (k *kind) pages(ctx context.Context, namespace string, options metav1.ListOptions) ([]runtime.Object, error) {
	options.Limit = pageSize
	return pages(ctx, options, func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return k.list(ctx, namespace, options)
	})
}

// pages lists page by page, of the options' size; all at once when the API server has forgotten where it was. Managed
// fields, which no view reads, are not kept: they are three quarters of a running pod's metadata.
func pages(ctx context.Context, options metav1.ListOptions, list pager.ListPageFunc) ([]runtime.Object, error) {
	light := func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		page, err := list(ctx, options)
		if err != nil {
			return nil, err
		}
		return page, meta.EachListItem(page, func(item runtime.Object) error {
			item.(metav1.Object).SetManagedFields(nil)
			return nil
		})
	}
	all, _, err := pager.New(light).List(ctx, options)
	if err != nil {
		return nil, err
	}
	return meta.ExtractList(all)
}

// Events returns the events of the pod, the oldest first; none if they may not be listed.
func (s *Source) Events(ctx context.Context, namespace, pod string) ([]corev1.Event, error) {
	list, err := s.kube.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: fields.Set{
		"involvedObject.kind": "Pod", "involvedObject.name": pod}.AsSelector().String()})
	if apierrors.IsForbidden(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the events of pod %s/%s: %w", namespace, pod, err)
	}
	slices.SortStableFunc(list.Items, func(a, b corev1.Event) int { return lastSeen(&a).Compare(lastSeen(&b)) })
	return list.Items, nil
}
