// Package permissions checks what an identity may do by RBAC, and that it may do nothing
// else: with the API server's own authorizer, for all resources of Kubernetes and ours.
package permissions

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	kubescheme "k8s.io/client-go/kubernetes/scheme"
	rbacvalidation "k8s.io/kubernetes/pkg/registry/rbac/validation"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac"
	"sigs.k8s.io/yaml"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
	"github.com/kubeslot/kubeslot/types/kubeslot/v1alpha1"
)

// Permission is what kubectl auth can-i asks for, and what it is for.
type Permission struct {
	Verbs    string // with blanks between them
	Resource string // resource[/subresource][.group]
	// In is the one namespace; "" for all.
	In string
	// Name is that of the one object; "" for all.
	Name string
	To   string
}

// Only checks that who may do what is in the table, and nothing else.
func Only(t *testing.T, may authorizer.Authorizer, who user.Info, table []Permission) {
	t.Helper()
	wrong, unused := map[string]bool{}, map[string]bool{}
	for _, p := range table {
		for _, verb := range strings.Fields(p.Verbs) {
			unused[verb+" "+p.Resource+" "+p.In+" "+p.Name] = true
		}
	}
	for _, resource := range allResources(t) {
		for _, verb := range allVerbs {
			for _, in := range []string{"", "default", "kube-system", "kube-node-lease", "kubeslot-system"} {
				for _, name := range []string{"", "any", "kubeslot-controller", "kubeslot-scheduler", "kubeslot-configurations"} {
					granted := slices.ContainsFunc(table, func(p Permission) bool {
						return p.Resource == resource && slices.Contains(strings.Fields(p.Verbs), verb) && (p.In == "" || p.In == in) && (p.Name == "" || p.Name == name)
					})
					if got := Allows(t, may, who, verb, resource, in, name); got != granted {
						if told := verb + resource; !wrong[told] { // once for all names and namespaces
							wrong[told] = true
							t.Errorf("%s: can-i %s %s/%s -n %q: %t, and the table says %t", who.GetName(), verb, resource, name, in, got, granted)
						}
					}
					if granted {
						for _, ns := range []string{"", in} {
							for _, n := range []string{"", name} {
								delete(unused, verb+" "+resource+" "+ns+" "+n)
							}
						}
					}
				}
			}
		}
	}
	for r := range unused {
		t.Errorf("the table of %s has %q, which no known resource and verb is", who.GetName(), r)
	}
}

// allVerbs are those of Kubernetes, with those that are rights alone.
var allVerbs = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection",
	"impersonate", "bind", "escalate", "approve", "sign", "attest", "use", "assign", "proxy", "*"}

// allResources are those of Kubernetes and ours, and the subresources that matter.
func allResources(t *testing.T) []string {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{kubescheme.AddToScheme, akriv0.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	all := sets.New("*", "*.*", "pods/exec", "pods/attach", "pods/portforward", "pods/log", "pods/status", "pods/binding", "pods/eviction", "pods/ephemeralcontainers", "pods/resize",
		"bindings", "nodes/proxy", "nodes/status", "services/proxy", "services/status", "serviceaccounts/token", "jobs/status.batch", "namespaces/finalize",
		"configurations/status.akri.sh", "configurations/finalizers.akri.sh", "instances/status.akri.sh", "certificatesigningrequests/approval.certificates.k8s.io",
		"signers.certificates.k8s.io", "users", "groups", "customresourcedefinitions.apiextensions.k8s.io", "apiservices.apiregistration.k8s.io",
		"tokenreviews.authentication.k8s.io", "subjectaccessreviews.authorization.k8s.io")
	for kind := range scheme.AllKnownTypes() {
		if strings.HasSuffix(kind.Kind, "List") || strings.HasSuffix(kind.Kind, "Options") || kind.Version == runtime.APIVersionInternal {
			continue
		}
		plural, _ := meta.UnsafeGuessKindToResource(kind)
		all.Insert(strings.TrimSuffix(plural.Resource+"."+plural.Group, "."))
	}
	if len(all) < 80 || !all.HasAll("secrets", "validatingwebhookconfigurations.admissionregistration.k8s.io", "clusterroles.rbac.authorization.k8s.io", "slotclaims.kubeslot.io") {
		t.Fatalf("only these are known: %q", sets.List(all))
	}
	return sets.List(all)
}

// Allows is kubectl auth can-i.
func Allows(t *testing.T, may authorizer.Authorizer, who user.Info, verb, resource, namespace, name string) bool {
	t.Helper()
	path, group, _ := strings.Cut(resource, ".")
	path, subresource, _ := strings.Cut(path, "/")
	decision, _, err := may.Authorize(context.Background(), authorizer.AttributesRecord{User: who, Verb: verb, APIGroup: group, APIVersion: "*",
		Resource: path, Subresource: subresource, Namespace: namespace, Name: name, ResourceRequest: true})
	if err != nil {
		t.Fatal(err)
	}
	return decision == authorizer.DecisionAllow
}

// Of is the API server's own authorizer, for the roles and bindings among the documents of a
// YAML text. A binding to a role that is not among them gives nothing.
func Of(t *testing.T, text []byte) authorizer.Authorizer {
	t.Helper()
	var (
		roles           []*rbacv1.Role
		bindings        []*rbacv1.RoleBinding
		clusterRoles    []*rbacv1.ClusterRole
		clusterBindings []*rbacv1.ClusterRoleBinding
	)
	for documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text))); ; {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal(document, &kind); err != nil {
			t.Fatal(err)
		}
		var into any
		switch kind.GroupVersionKind() {
		case rbacv1.SchemeGroupVersion.WithKind("Role"):
			roles = append(roles, &rbacv1.Role{})
			into = roles[len(roles)-1]
		case rbacv1.SchemeGroupVersion.WithKind("RoleBinding"):
			bindings = append(bindings, &rbacv1.RoleBinding{})
			into = bindings[len(bindings)-1]
		case rbacv1.SchemeGroupVersion.WithKind("ClusterRole"):
			clusterRoles = append(clusterRoles, &rbacv1.ClusterRole{})
			into = clusterRoles[len(clusterRoles)-1]
		case rbacv1.SchemeGroupVersion.WithKind("ClusterRoleBinding"):
			clusterBindings = append(clusterBindings, &rbacv1.ClusterRoleBinding{})
			into = clusterBindings[len(clusterBindings)-1]
		default:
			continue
		}
		if err := yaml.UnmarshalStrict(document, into); err != nil {
			t.Fatalf("a %s: %v", kind.Kind, err)
		}
	}
	_, static := rbacvalidation.NewTestRuleResolver(roles, bindings, clusterRoles, clusterBindings)
	return rbac.New(static, static, static, static)
}
