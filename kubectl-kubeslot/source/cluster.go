package source

import (
	"context"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeslot/kubeslot/kubectl-kubeslot/view"
)

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// Cluster reads what doctor looks at besides. It is an error if it may not be read.
func (s *Source) Cluster(ctx context.Context) (*view.Cluster, error) {
	version, err := s.kube.Discovery().ServerVersion()
	if err != nil {
		return nil, fmt.Errorf("ask the API server for its version: %w", err)
	}
	c := &view.Cluster{Version: version.GitVersion, Definitions: map[string]*unstructured.Unstructured{}, Roles: map[string][]rbacv1.PolicyRule{}}
	if c.Policies, err = s.policies(ctx); err != nil {
		return nil, err
	}
	for _, name := range view.Definitions() {
		definition, err := s.objects.Resource(definitions).Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			c.Definitions[name] = definition
		} else if !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("get customresourcedefinition %s: %w", name, err)
		}
	}
	for _, name := range view.Roles() {
		role, err := s.kube.RbacV1().ClusterRoles().Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			c.Roles[name] = role.Rules
		} else if !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("get clusterrole %s: %w", name, err)
		}
	}
	bindings, err := s.kube.RbacV1().ClusterRoleBindings().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list clusterrolebindings: %w", err)
	}
	for _, b := range bindings.Items {
		if _, ours := c.Roles[b.RoleRef.Name]; ours && len(b.Subjects) > 0 {
			c.Bound = append(c.Bound, b.RoleRef.Name)
		}
	}
	return c, nil
}

// policies are the names of those that a binding enforces.
func (s *Source) policies(ctx context.Context) ([]string, error) {
	policies, err := s.kube.AdmissionregistrationV1().ValidatingAdmissionPolicies().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list validatingadmissionpolicies: %w", err)
	}
	bindings, err := s.kube.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list validatingadmissionpolicybindings: %w", err)
	}
	var enforced []string
	for _, p := range policies.Items {
		for _, b := range bindings.Items {
			if b.Spec.PolicyName == p.Name && slices.Contains(b.Spec.ValidationActions, "Deny") {
				enforced = append(enforced, p.Name)
				break
			}
		}
	}
	return enforced, nil
}

// Nodes reads the nodes alone, for what is left in them of a Kubeslot that is gone.
func (s *Source) Nodes(ctx context.Context) (view.Objects, error) {
	nodes, err := s.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return view.Objects{}, fmt.Errorf("list nodes: %w", err)
	}
	return view.Objects{Nodes: nodes.Items}, nil
}
