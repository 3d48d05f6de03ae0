package command

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kubeslot/kubeslot/kubectl-kubeslot/view"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/client/clientset/versioned"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// pageSize is how many objects are asked for at once.
const pageSize = 500

// read makes a view of what the user may list. What may not be listed in the whole
// cluster is listed in the user's namespace; what may not be listed at all is left out,
// which standard error says. With complete that is an error instead.
func (o *options) read(ctx context.Context, complete bool) (*view.View, error) {
	config, err := o.kube.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.QPS, config.Burst, config.UserAgent = 50, 100, "kubectl-kubeslot"
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	client, err := versioned.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	namespace, err := o.namespace()
	if err != nil {
		return nil, err
	}
	r := &reader{ctx: ctx, options: o, namespace: namespace, complete: complete}
	objects := view.Objects{
		Configurations: pages(r, "configurations.akri.sh", true, func(ns string, options metav1.ListOptions) ([]akriv0.Configuration, string, error) {
			l, err := client.AkriV0().Configurations(ns).List(ctx, options)
			if err != nil {
				return nil, "", err
			}
			return l.Items, l.Continue, nil
		}),
		Instances: pages(r, "instances.akri.sh", true, func(ns string, options metav1.ListOptions) ([]akriv0.Instance, string, error) {
			l, err := client.AkriV0().Instances(ns).List(ctx, options)
			if err != nil {
				return nil, "", err
			}
			return l.Items, l.Continue, nil
		}),
		Slices: pages(r, "deviceslices.kubeslot.io", false, func(_ string, options metav1.ListOptions) ([]v1alpha1.DeviceSlice, string, error) {
			l, err := client.KubeslotV1alpha1().DeviceSlices().List(ctx, options)
			if err != nil {
				return nil, "", err
			}
			return l.Items, l.Continue, nil
		}),
		Claims: pages(r, "slotclaims.kubeslot.io", false, func(_ string, options metav1.ListOptions) ([]v1alpha1.SlotClaim, string, error) {
			l, err := client.KubeslotV1alpha1().SlotClaims().List(ctx, options)
			if err != nil {
				return nil, "", err
			}
			return l.Items, l.Continue, nil
		}),
		Pods: pages(r, "pods", true, func(ns string, options metav1.ListOptions) ([]corev1.Pod, string, error) {
			l, err := kube.CoreV1().Pods(ns).List(ctx, options)
			if err != nil {
				return nil, "", err
			}
			return l.Items, l.Continue, nil
		}),
		Nodes: pages(r, "nodes", false, func(_ string, options metav1.ListOptions) ([]corev1.Node, string, error) {
			l, err := kube.CoreV1().Nodes().List(ctx, options)
			if err != nil {
				return nil, "", err
			}
			return l.Items, l.Continue, nil
		}),
	}
	if r.err != nil {
		return nil, r.err
	}
	return view.New(objects), nil
}

// needed are those without which there is nothing to show.
var needed = map[string]bool{"configurations.akri.sh": true, "instances.akri.sh": true}

// reader lists kinds of objects one after the other.
type reader struct {
	*options
	ctx       context.Context
	namespace string
	complete  bool
	err       error // the first
}

// pages lists all objects of a kind, page by page.
func pages[T any](r *reader, resource string, namespaced bool, list func(namespace string, options metav1.ListOptions) ([]T, string, error)) []T {
	if r.err != nil {
		return nil
	}
	all, err := inNamespace(metav1.NamespaceAll, list)
	if apierrors.IsForbidden(err) && namespaced && !r.complete {
		all, err = inNamespace(r.namespace, list)
	}
	switch {
	case err == nil:
		return all
	case apierrors.IsForbidden(err) && !r.complete && !needed[resource]:
		fmt.Fprintf(r.streams.ErrOut, "You may not list %s: what they say is missing here.\n", resource)
		return nil
	case apierrors.IsNotFound(err):
		r.err = fmt.Errorf("the cluster has no %s: is Kubeslot installed there? (kubectl apply -f deploy/crds)", resource)
	default:
		r.err = fmt.Errorf("list %s: %w", resource, err)
	}
	return nil
}

func inNamespace[T any](namespace string, list func(string, metav1.ListOptions) ([]T, string, error)) ([]T, error) {
	var all []T
	options := metav1.ListOptions{Limit: pageSize}
	for {
		items, next, err := list(namespace, options)
		switch {
		case apierrors.IsResourceExpired(err) && options.Continue != "":
			all, options = nil, metav1.ListOptions{} // took too long: all at once
			continue
		case err != nil:
			return nil, err
		}
		all = append(all, items...)
		if next == "" {
			return all, nil
		}
		options.Continue = next
	}
}
