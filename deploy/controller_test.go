package deploy

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
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

// right is what kubectl auth can-i asks for.
type right struct {
	verbs    string // with blanks between them
	resource string // resource[/subresource][.group]
	// in is the one namespace; "" for all.
	in string
	// name is that of the one object; "" for all.
	name string
}

// rightTo is a right, and what it is for.
type rightTo struct {
	right
	to string
}

// controllerRights are all that the controller may do, and what it is for.
var controllerRights = []rightTo{
	{right{verbs: "get list watch patch", resource: "configurations.akri.sh"}, "take off finalizers of Akri's agents"},
	{right{verbs: "patch", resource: "configurations/status.akri.sh"}, "write their status"},
	{right{verbs: "get list watch create patch delete", resource: "instances.akri.sh"}, "write the view of what nodes report"},
	{right{verbs: "get list watch", resource: "deviceslices.kubeslot.io"}, "read what nodes report"},
	{right{verbs: "get list watch delete", resource: "slotclaims.kubeslot.io"}, "free the slots of what is gone"},
	{right{verbs: "get list watch", resource: "nodes"}, "know which are Ready"},
	{right{verbs: "get list watch create patch delete", resource: "pods"}, "run brokers"},
	{right{verbs: "get list watch create patch delete", resource: "jobs.batch"}, "run brokers"},
	{right{verbs: "get list watch create update delete", resource: "services"}, "make brokers' Services"},
	{right{verbs: "create patch", resource: "events"}, "tell people"},
	{right{verbs: "create patch", resource: "events.events.k8s.io"}, "tell people"},
	{right{verbs: "list watch patch", resource: "validatingwebhookconfigurations.admissionregistration.k8s.io", name: "kubeslot-configurations"}, "have API servers trust its webhook"},
	{right{verbs: "create", resource: "tokenreviews.authentication.k8s.io"}, "know who asks for its metrics"},
	{right{verbs: "create", resource: "subjectaccessreviews.authorization.k8s.io"}, "know whether he may read them"},
	{right{verbs: "create", resource: "leases.coordination.k8s.io", in: "kube-system"}, "elect a leader"},
	{right{verbs: "get update", resource: "leases.coordination.k8s.io", in: "kube-system", name: "kubeslot-controller"}, "elect a leader"},
}

// The controller may do what is in the table and nothing else: no Secrets, no binding of
// pods, no other webhooks, and in particular nothing by which it could get more rights.
func TestWhatTheControllerMayDo(t *testing.T) {
	may := authorizerOf(t, "rbac/controller.yaml")
	for _, who := range []user.Info{
		&user.DefaultInfo{Name: "system:kubeslot-controller", Groups: []string{"system:authenticated"}},
		account("kubeslot-system", "kubeslot-controller", ""),
	} {
		mayDoOnly(t, may, who, controllerRights)
	}
	for _, who := range []user.Info{account("default", "kubeslot-controller", ""), &user.DefaultInfo{Name: "eve", Groups: []string{"system:authenticated"}}} {
		if allows(t, may, who, "get", "pods", "default", "any") {
			t.Errorf("%s has the controller's rights", who.GetName())
		}
	}
}

// mayDoOnly checks that who may do what is in the table, and nothing else.
func mayDoOnly(t *testing.T, may authorizer.Authorizer, who user.Info, table []rightTo) {
	t.Helper()
	wrong, unused := map[string]bool{}, map[string]bool{}
	for _, r := range table {
		for _, verb := range strings.Fields(r.verbs) {
			unused[verb+" "+r.resource+" "+r.in+" "+r.name] = true
		}
	}
	for _, resource := range allResources(t) {
		for _, verb := range allVerbs {
			for _, in := range []string{"", "default", "kube-system", "kubeslot-system"} {
				for _, name := range []string{"", "any", "kubeslot-controller", "kubeslot-configurations"} {
					granted := slices.ContainsFunc(table, func(r rightTo) bool {
						return r.resource == resource && slices.Contains(strings.Fields(r.verbs), verb) && (r.in == "" || r.in == in) && (r.name == "" || r.name == name)
					})
					if got := allows(t, may, who, verb, resource, in, name); got != granted {
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

// allows is kubectl auth can-i.
func allows(t *testing.T, may authorizer.Authorizer, who user.Info, verb, resource, namespace, name string) bool {
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

// authorizerOf is the API server's own, for the roles and bindings of a file.
func authorizerOf(t *testing.T, file string) authorizer.Authorizer {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var (
		roles           []*rbacv1.Role
		bindings        []*rbacv1.RoleBinding
		clusterRoles    []*rbacv1.ClusterRole
		clusterBindings []*rbacv1.ClusterRoleBinding
	)
	for documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data))); ; {
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
		case schema.GroupVersionKind{}: // comments alone
			continue
		default:
			t.Fatalf("%s has a %s", file, kind.Kind)
		}
		if err := yaml.UnmarshalStrict(document, into); err != nil {
			t.Fatal(fmt.Errorf("%s: %w", file, err))
		}
	}
	_, static := rbacvalidation.NewTestRuleResolver(roles, bindings, clusterRoles, clusterBindings)
	return rbac.New(static, static, static, static)
}
