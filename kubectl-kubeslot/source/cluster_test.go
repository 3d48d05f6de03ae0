package source

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/version"
	fakediscovery "k8s.io/client-go/discovery/fake"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	akrifake "github.com/kubeslot/kubeslot/types/client/clientset/versioned/fake"
)

func TestCluster(t *testing.T) {
	policy := func(name string, action admissionregistrationv1.ValidationAction) []runtime.Object {
		return []runtime.Object{&admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}},
			&admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: name, ValidationActions: []admissionregistrationv1.ValidationAction{action}}}}
	}
	role := func(name string, subjects ...rbacv1.Subject) []runtime.Object {
		return []runtime.Object{&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{{Verbs: []string{"get"}}}},
			&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: name}, Subjects: subjects}}
	}
	var objects []runtime.Object
	objects = append(objects, policy("kubeslot-assignment", admissionregistrationv1.Deny)...)
	objects = append(objects, policy("kubeslot-brokers", admissionregistrationv1.Audit)...)
	objects = append(objects, role("kubeslot:kubecri", rbacv1.Subject{Name: "system:kubecris"})...)
	objects = append(objects, role("kubeslot:controller")...)
	objects = append(objects, role("somebody:else", rbacv1.Subject{Name: "x"})...)
	definition := func(name string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": name}}}
	}
	clients := func() (*kubefake.Clientset, *dynamicfake.FakeDynamicClient) {
		kube := kubefake.NewClientset(objects...)
		kube.Discovery().(*fakediscovery.FakeDiscovery).FakedServerVersion = &version.Info{GitVersion: "v1.37.2"}
		return kube, dynamicfake.NewSimpleDynamicClient(runtime.NewScheme(), definition("instances.akri.sh"), definition("widgets.example.com"))
	}
	kube, definitions := clients()
	c, err := For(kube, akrifake.NewSimpleClientset(), definitions, nil, "default").Cluster(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if c.Version != "v1.37.2" || len(c.Definitions) != 1 || c.Definitions["instances.akri.sh"] == nil {
		t.Errorf("version %s, definitions %v", c.Version, c.Definitions)
	}
	if diff := cmp.Diff([]string{"kubeslot-assignment"}, c.Policies); diff != "" { // which are enforced
		t.Errorf("policies (-want +got):\n%s", diff)
	}
	if len(c.Roles) != 2 || len(c.Roles["kubeslot:kubecri"]) != 1 {
		t.Errorf("roles %v", c.Roles)
	}
	if diff := cmp.Diff([]string{"kubeslot:kubecri"}, c.Bound); diff != "" { // to somebody
		t.Errorf("bound roles (-want +got):\n%s", diff)
	}

	for resource, verb := range map[string]string{"validatingadmissionpolicies": "list", "validatingadmissionpolicybindings": "list",
		"customresourcedefinitions": "get", "clusterroles": "get", "clusterrolebindings": "list"} {
		kube, definitions := clients()
		for _, f := range []*clienttesting.Fake{&kube.Fake, &definitions.Fake} {
			refuse(f, verb, func(a clienttesting.Action) error {
				if a.GetResource().Resource == resource {
					return forbidden(resource)
				}
				return nil
			})
		}
		_, err := For(kube, akrifake.NewSimpleClientset(), definitions, nil, "default").Cluster(t.Context())
		if err == nil || !strings.Contains(err.Error(), strings.TrimSuffix(strings.TrimSuffix(resource, "s"), "ie")) || !strings.Contains(err.Error(), "forbidden") {
			t.Errorf("who may not %s %s is told %v", verb, resource, err)
		}
	}
	if !errors.Is(explain("configurations.akri.sh", errNotFound("configurations")), NoConfigurations) {
		t.Error("a cluster without Configurations is not known as one")
	}
}
