package source

import (
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeslot/kubeslot/kubectl-kubeslot/view"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// Wanted says what List reads of pods and nodes. The zero value is enough for what slots are used for: the pods that
// may hold slots or wait for some. They are found without reading all pods: the pending ones by their phase; of the
// others the metadata has the slots that they were assigned, and the claims say that they hold them.
type Wanted struct {
	AllPods bool
	// Of is the namespace of pods that are explained besides, "" for none: of Names, or all that it has. When one of
	// them waits for a node, all pods of the cluster are read, for what they request on nodes counts.
	Of    string
	Names []string
	// Kubecri are nodes whose kubecri pods are read besides.
	Kubecri []string
	// NoNodes leaves out nodes, unless a Configuration's spec.discovery selects some.
	NoNodes bool
}

// maxGets is how many pods are read one by one before all are listed: fewer requests than pages of 50,000 pods, and
// no more than are made at once.
const maxGets = burst / 2

// kubecriPods selects the pods of kubecri, as v1alpha1.IsKubecri does.
const kubecriPods = "app.kubernetes.io/name=kubecri"

// finder finds the pods that hold slots by the claims: those that are known, and those that have to be read.
type finder func(claims []v1alpha1.SlotClaim) (known []runtime.Object, unclear []types.NamespacedName)

// pods reads the pods that are wanted as far as the user may, and returns what finds others among those that run; nil
// when all were read. Pending pods are read before those that run: one that begins to run meanwhile is among both.
func (s *Source) pods(ctx context.Context, k *kind, wanted Wanted) ([]runtime.Object, finder, scope, error) {
	explained, err := s.explained(ctx, k, wanted)
	if wanted.AllPods || apierrors.IsForbidden(err) || slices.ContainsFunc(explained, awaitsNode) {
		items, reach, err := s.read(ctx, k)
		return items, nil, reach, err
	}
	if err != nil {
		return nil, nil, everywhere, err
	}
	pending, err := k.pages(ctx, metav1.NamespaceAll,
		selecting(fields.OneTermEqualSelector("status.phase", string(corev1.PodPending))))
	if apierrors.IsForbidden(err) {
		items, reach, err := s.read(ctx, k)
		return items, nil, reach, err
	}
	if err != nil {
		return nil, nil, everywhere, explain(k.resource, err)
	}
	find := func(claims []v1alpha1.SlotClaim) ([]runtime.Object, []types.NamespacedName) {
		return nil, rivals(explained, claims)
	}
	if len(wanted.Names) == 0 || len(explained) < len(wanted.Names) {
		others, err := s.metadataOf(ctx, Pods, metav1.NamespaceAll, selecting(running))
		if err != nil {
			return nil, nil, everywhere, explain(k.resource, err)
		}
		find = func(claims []v1alpha1.SlotClaim) ([]runtime.Object, []types.NamespacedName) {
			return holders(others, claims)
		}
	}
	kubecri, err := s.kubecri(ctx, k, wanted, explained)
	if err != nil {
		return nil, nil, everywhere, explain(k.resource, err)
	}
	return distinct(explained, pending, kubecri), find, everywhere, nil
}

// running selects pods that are neither pending nor have ended.
var running = fields.AndSelectors(
	fields.OneTermNotEqualSelector("status.phase", string(corev1.PodPending)),
	fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)),
	fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed)))

func selecting(selector fields.Selector) metav1.ListOptions {
	return metav1.ListOptions{FieldSelector: selector.String()}
}

func awaitsNode(o runtime.Object) bool { return view.AwaitsNode(o.(*corev1.Pod)) }

// explained are the pods that are explained. One that does not exist is left out.
func (s *Source) explained(ctx context.Context, k *kind, wanted Wanted) ([]runtime.Object, error) {
	if wanted.Of == "" || wanted.AllPods {
		return nil, nil
	}
	if len(wanted.Names) == 0 || len(wanted.Names) > maxGets {
		return k.pages(ctx, wanted.Of, metav1.ListOptions{})
	}
	var all []runtime.Object
	for _, name := range wanted.Names {
		pod, err := s.kube.CoreV1().Pods(wanted.Of).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("get pod %s/%s: %w", wanted.Of, name, err)
		}
		all = append(all, pod)
	}
	return all, nil
}

// kubecri are the pods of kubecri on the nodes that are asked for, and on those of pods that are explained.
func (s *Source) kubecri(ctx context.Context, k *kind, wanted Wanted, explained []runtime.Object) ([]runtime.Object,
	error) {
	nodes := slices.Clone(wanted.Kubecri)
	for _, o := range explained {
		if pod := o.(*corev1.Pod); pod.Spec.NodeName != "" && view.Asks(pod) {
			nodes = append(nodes, pod.Spec.NodeName)
		}
	}
	slices.Sort(nodes)
	if nodes = slices.Compact(nodes); len(nodes) > maxGets {
		return k.pages(ctx, metav1.NamespaceAll, metav1.ListOptions{LabelSelector: kubecriPods})
	}
	var all []runtime.Object
	for _, node := range nodes {
		pods, err := k.pages(ctx, metav1.NamespaceAll, metav1.ListOptions{LabelSelector: kubecriPods,
			FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String()})
		if err != nil {
			return nil, err
		}
		all = append(all, pods...)
	}
	return all, nil
}

// distinct are the pods, each once: as it was read first.
func distinct(lists ...[]runtime.Object) []runtime.Object {
	var all []runtime.Object
	seen := map[types.UID]bool{}
	for _, o := range slices.Concat(lists...) {
		if uid := o.(*corev1.Pod).UID; !seen[uid] {
			seen[uid] = true
			all = append(all, o)
		}
	}
	return all
}

// withHolders adds pods that hold slots. Those that are unclear are read; when they are many, or may not be read one
// by one, all pods are.
func (s *Source) withHolders(ctx context.Context, k *kind, pods, known []runtime.Object,
	unclear []types.NamespacedName) ([]runtime.Object, error) {
	answers, errs := make([]*corev1.Pod, len(unclear)), make([]error, len(unclear))
	if len(unclear) <= maxGets {
		var group sync.WaitGroup
		for i, of := range unclear {
			group.Go(func() {
				answers[i], errs[i] = s.kube.CoreV1().Pods(of.Namespace).Get(ctx, of.Name, metav1.GetOptions{})
			})
		}
		group.Wait()
	}
	if len(unclear) > maxGets || slices.ContainsFunc(errs, apierrors.IsForbidden) {
		all, _, err := s.read(ctx, k)
		return distinct(all, pods), err
	}
	var read []runtime.Object
	for i, err := range errs {
		switch {
		case err == nil:
			read = append(read, answers[i])
		case !apierrors.IsNotFound(err): // it has gone meanwhile
			return nil, fmt.Errorf("get pod %s: %w", unclear[i], err)
		}
	}
	return distinct(pods, read, known), nil
}
