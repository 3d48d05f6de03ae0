package deploy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kubeslot/kubeslot/test/permissions"
)

func TestWebhookOnAnAPIServer(t *testing.T) {
	r := newRig(t)
	_, err := r.Kubectl(t.Context(), "apply", "-f", "webhook.yaml")
	r.check(err)
	t.Cleanup(func() {
		_, err := r.Kubectl(context.Background(), "delete", "-f", "webhook.yaml")
		r.check(err)
	})

	// Nobody answers: Configurations are stored, without delay.
	r.check(r.try(wrong)) // and the client knows the API
	r.check(r.akri.Create(t.Context(), configuration(t, "early", wrong)))
	r.withoutDelay("while there is no webhook")

	r.controller("a", 10362)
	r.awaitRefusal()
	r.awaitProblem("early", imagee)

	for _, part := range []struct {
		name string
		run  func(*rig, *testing.T)
	}{
		{"RBAC", (*rig).rbac}, {"WhoMay", (*rig).whoMay}, {"Refusals", (*rig).refusals}, {"StoredBefore", (*rig).storedBefore}, {"Samples", (*rig).samples},
		{"Replicas", (*rig).replicas}, {"Bundle", (*rig).bundleIsKept},
	} {
		t.Run(part.name, func(t *testing.T) {
			of := *r
			of.T = t
			part.run(&of, t)
		})
	}
}

// The API server grants what the table says, and little else is asked.
func (r *rig) rbac(t *testing.T) {
	can := func(verb, resource, in, name string) bool {
		path, group, _ := strings.Cut(resource, ".")
		path, subresource, _ := strings.Cut(path, "/")
		review, err := r.kube.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "system:kubeslot-controller", Groups: []string{"system:authenticated"},
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Group: group, Resource: path, Subresource: subresource, Namespace: in, Name: name},
		}}, metav1.CreateOptions{})
		r.check(err)
		return review.Status.Allowed
	}
	for _, p := range permissions.Controller {
		for _, verb := range strings.Fields(p.Verbs) {
			if !can(verb, p.Resource, p.In, p.Name) {
				t.Errorf("may not %s %s %s", verb, p.Resource, p.Name)
			}
		}
	}
	for _, p := range []permissions.Permission{{Verbs: "get", Resource: "secrets"}, {Verbs: "create", Resource: "pods/exec"}, {Verbs: "update", Resource: "configurations.akri.sh"},
		{Verbs: "patch", Resource: "validatingwebhookconfigurations.admissionregistration.k8s.io", Name: "other"}, {Verbs: "create", Resource: "validatingwebhookconfigurations.admissionregistration.k8s.io"}} {
		if can(p.Verbs, p.Resource, p.In, p.Name) {
			t.Errorf("may %s %s %s", p.Verbs, p.Resource, p.Name)
		}
	}
}

// Who may write Configurations has the controller make only what he may make himself.
func (r *rig) whoMay(t *testing.T) {
	config, err := r.RESTConfig()
	r.check(err)
	config.QPS, config.WarningHandler, config.Impersonate = -1, rest.NoWarnings{}, rest.ImpersonationConfig{UserName: "eve", Groups: []string{"system:authenticated"}}
	eve := r.client(config)
	grant := func(name, group string, resources ...string) {
		role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{group}, Resources: resources, Verbs: []string{"create"}}}}
		_, err := r.kube.RbacV1().Roles("default").Create(t.Context(), role, metav1.CreateOptions{})
		r.check(err)
		_, err = r.kube.RbacV1().RoleBindings("default").Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: role.ObjectMeta,
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "eve"}}}, metav1.CreateOptions{})
		r.check(err)
	}
	grant("configurations", "akri.sh", "configurations")
	const of = `{discoveryHandler: {name: sonar}, `
	try := func(spec string) error {
		return eve.Create(t.Context(), configuration(t, "try", spec), client.DryRunAll)
	}
	r.await("eve to be allowed Configurations", func() (bool, string) { err := try(of + "}"); return err == nil, fmt.Sprint(err) })
	for _, made := range []struct{ spec, group, resource, want string }{
		{of + `brokerSpec: {brokerPodSpec: {containers: [{name: b, image: i}]}}}`, "", "pods", "has the controller create pods, which eve may not do in namespace default"},
		{of + `brokerSpec: {brokerJobSpec: {template: {spec: {restartPolicy: Never, containers: [{name: b, image: i}]}}}}}`, "batch", "jobs", "has the controller create Jobs"},
		{of + `instanceServiceSpec: {ports: [{port: 80}]}}`, "", "services", "have the controller create Services"},
	} {
		if err := try(made.spec); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), made.want) {
			t.Errorf("without the right to create %s: %v", made.resource, err)
		}
		grant(made.resource, made.group, made.resource)
		r.await("eve to be allowed what makes "+made.resource, func() (bool, string) { err := try(made.spec); return err == nil, fmt.Sprint(err) })
	}
}

// What people see who write something wrong.
func (r *rig) refusals(t *testing.T) {
	for name, tc := range map[string]struct{ spec, want string }{
		"a Pod's field":        {wrong, imagee},
		"a Pod's type":         {`{discoveryHandler: {name: sonar}, brokerSpec: {brokerPodSpec: {containers: [{name: b, image: i, ports: [{containerPort: "80"}]}]}}}`, `containers[0].ports[0].containerPort: Invalid value: "80": want an integer`},
		"a Job's field":        {`{discoveryHandler: {name: sonar}, brokerSpec: {brokerJobSpec: {template: {spec: {restartPolicy: Never, contaners: []}}}}}`, `spec.brokerSpec.brokerJobSpec.template.spec.contaners: Forbidden: unknown field; did you mean "containers"?`},
		"a Service's field":    {`{discoveryHandler: {name: sonar}, configurationServiceSpec: {ports: [{porrt: 80}]}}`, `spec.configurationServiceSpec.ports[0].porrt: Forbidden: unknown field; did you mean "port"?`},
		"a udev rule":          {`{discoveryHandler: {name: udev, discoveryDetails: "udevRules: ['KERNEL==\"video*\", SUBSYSTEM=\"video4linux\"']"}}`, `spec.discoveryHandler.discoveryDetails: Invalid value: udevRules[0], column 28: `},
		"a mount over a token": {`{discoveryHandler: {name: debugEcho, discoveryDetails: "{descriptions: [a], mounts: [{containerPath: /var/run/secrets, hostPath: /dev, readOnly: true}]}"}}`, `mounts[0]: containerPath "/var/run/secrets": has, or is in, the directory of the container`},
		"capacity":             {`{capacity: 1, discoveryHandler: {name: sonar}, brokerSpec: {brokerPodSpec: {containers: [{name: b, image: i, resources: {limits: {"{{PLACEHOLDER}}": "2"}}}]}}}`, `the broker requests 2 slots of its Instance, which has 1`},
	} {
		t.Run(name, func(t *testing.T) {
			err := r.try(tc.spec)
			var status apierrors.APIStatus
			if !apierrors.IsInvalid(err) || !errors.As(err, &status) || !strings.HasPrefix(err.Error(), `admission webhook "configurations.kubeslot.io" denied the request: spec.`) || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("error %v, want %q", err, tc.want)
			}
			if causes := status.Status().Details.Causes; len(causes) != 1 || !strings.HasPrefix(causes[0].Field, "spec.") {
				t.Errorf("causes %+v", causes)
			}
		})
	}
	_, err := r.Kubectl(t.Context(), "create", "--dry-run=server", "--validate=false", "-f", write(t, "apiVersion: akri.sh/v0\nkind: Configuration\nmetadata: {name: try}\nspec: "+wrong))
	if want := `The Configuration "try" is invalid: ` + imagee; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("kubectl says %v", err)
	}
	// What may be meant is a warning.
	r.warnings.texts = nil
	body := &unstructured.Unstructured{}
	r.check(yaml.Unmarshal([]byte(`{apiVersion: akri.sh/v0, kind: Configuration, metadata: {namespace: default, name: try}, spec: {discoveryHandler: {name: udev, discoveryDetails: "{udevRules: [], groupRecursiv: true}"}}}`), body))
	config, err := r.RESTConfig()
	r.check(err)
	config.WarningHandler = r.warnings
	warned, err := client.New(config, client.Options{})
	r.check(err)
	r.check(warned.Create(t.Context(), body, client.DryRunAll))
	if want := `spec.discoveryHandler.discoveryDetails: unknown field "groupRecursiv": ignored; did you mean "groupRecursive"?`; !slices.Contains(r.warnings.texts, want) {
		t.Errorf("warnings %q, want %q", r.warnings.texts, want)
	}
}

func write(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "object.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// What was stored before there was a webhook can be labelled, changed elsewhere,
// corrected and deleted.
func (r *rig) storedBefore(t *testing.T) {
	r.check(r.patch("early", `{"metadata":{"labels":{"a":"b"}}}`))
	r.check(r.patch("early", `{"spec":{"capacity":3}}`))
	if err := r.patch("early", `{"spec":{"brokerSpec":{"brokerPodSpec":{"nodeName":7}}}}`); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "brokerPodSpec.nodeName: Invalid value: 7") || strings.Contains(err.Error(), "imagee") {
		t.Errorf("making it worse: %v", err)
	}
	r.awaitProblem("early", imagee)
	r.check(r.patch("early", `{"spec":{"brokerSpec":{"brokerPodSpec":{"containers":[{"name":"b","image":"i"}]}}}}`))
	r.awaitProblem("early", "")
	r.check(r.akri.Delete(t.Context(), r.get("early")))
}

// Akri's samples are stored as they are.
func (r *rig) samples(t *testing.T) {
	files, err := filepath.Glob("../types/akri/v0/testdata/*.yaml")
	r.check(err)
	if len(files) == 0 {
		t.Fatal("there are none")
	}
	for _, file := range files {
		_, err := r.Kubectl(t.Context(), "create", "--dry-run=server", "-f", file)
		r.check(err)
	}
}

// withoutDelay checks that a wrong Configuration is taken sooner than after the webhook's timeout. It is tried some
// times, for the machine may be busy.
func (r *rig) withoutDelay(when string) {
	r.Helper()
	fastest := time.Hour
	for try := 0; fastest >= 2*time.Second && try < 10; try++ {
		began := time.Now()
		r.check(r.try(wrong))
		fastest = min(fastest, time.Since(began))
	}
	if fastest >= 2*time.Second {
		r.Errorf("a Configuration took %s %s", fastest, when)
	}
}

// A replica that does not lead answers too; one that is killed holds nothing up.
func (r *rig) replicas(t *testing.T) {
	r.controller("b", 10363)
	r.await("both certificates to be in the caBundle", func() (bool, string) {
		n := countCertificates(r.bundle())
		return n == 2, fmt.Sprintf("%d certificates", n)
	})
	r.lead(10363)
	r.awaitRefusal()
	r.check(r.Kill("b", control, syscall.SIGKILL))
	r.await("wrong Configurations to be stored while the replica is down", func() (bool, string) {
		err := r.try(wrong)
		return err == nil, fmt.Sprint(err)
	})
	r.withoutDelay("while the webhook was down")
	r.check(r.Start("b", control))
	r.awaitRefusal()
	if n := countCertificates(r.bundle()); n != 2 {
		t.Errorf("%d certificates after a restart, want 2", n)
	}
	// One that hangs delays by the timeout, and no more.
	r.check(r.Kill("b", control, syscall.SIGSTOP))
	began := time.Now()
	err := r.try(wrong)
	if took := time.Since(began); err != nil || took < 2*time.Second || took > 20*time.Second {
		t.Errorf("while the webhook hangs a Configuration took %s: %v", took, err)
	}
	r.check(r.Kill("b", control, syscall.SIGCONT))
	r.awaitRefusal()
	r.check(r.RemoveProgram("b", control))
	r.lead(10362)
	r.awaitRefusal()
}

// Whoever applies the manifest again leaves the caBundle; who replaces it has it back.
func (r *rig) bundleIsKept(t *testing.T) {
	before := r.bundle()
	for _, args := range [][]string{{"apply"}, {"apply", "--server-side", "--force-conflicts"}} {
		_, err := r.Kubectl(t.Context(), append(args, "-f", "webhook.yaml")...)
		r.check(err)
		if string(r.bundle()) != string(before) {
			t.Errorf("kubectl %s changes the caBundle", strings.Join(args, " "))
		}
	}
	_, err := r.Kubectl(t.Context(), "replace", "-f", "webhook.yaml")
	r.check(err)
	r.await("the caBundle to be back", func() (bool, string) { n := countCertificates(r.bundle()); return n > 0, fmt.Sprint(n) })
	r.awaitRefusal()
	_, err = r.Kubectl(t.Context(), "delete", "-f", "webhook.yaml")
	r.check(err)
	r.check(r.try(wrong))
	_, err = r.Kubectl(t.Context(), "create", "-f", "webhook.yaml")
	r.check(err)
	r.awaitRefusal()
}
