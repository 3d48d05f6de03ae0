package helm

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

// The page runs apart from the controller, without permissions, without a token, and where the
// namespace enforces the Pod Security Standard restricted.
func TestPageHasNoPermissions(t *testing.T) {
	h := newHelm(t, 4)
	if all := h.render(t); all.has("Deployment", "kubeslot-ui") || all.has("Service", "kubeslot-ui") {
		t.Error("there is a page that nobody asked for")
	}
	all := h.render(t, "--set", "ui.enabled=true,ui.tlsSecret=page,controller.enabled=false")
	deployment := all.get(t, "Deployment", "kubeslot-ui")
	account := all.get(t, "ServiceAccount", "kubeslot-ui")
	if field(account, "automountServiceAccountToken") != false {
		t.Errorf("the ServiceAccount's token is mounted: %v", account.Object)
	}
	var template corev1.PodTemplateSpec
	pod := field(deployment, "spec", "template").(map[string]any)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(pod, &template); err != nil {
		t.Fatal(err)
	}
	spec := &template.Spec
	if spec.ServiceAccountName != "kubeslot-ui" || spec.AutomountServiceAccountToken == nil ||
		*spec.AutomountServiceAccountToken {
		t.Errorf("the page runs as %s, and its token is mounted: %v", spec.ServiceAccountName,
			spec.AutomountServiceAccountToken)
	}
	for _, v := range spec.Volumes {
		if v.Projected != nil || v.HostPath != nil {
			t.Errorf("the page has the volume %v", v)
		}
	}
	for _, o := range all {
		if subjects, _ := field(o, "subjects").([]any); strings.Contains(fmt.Sprint(subjects...), "kubeslot-ui") {
			t.Errorf("%s gives permissions to the page", key(o))
		}
	}
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	restricted := api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}
	for _, result := range evaluator.EvaluatePod(restricted, &template.ObjectMeta, spec) {
		if !result.Allowed {
			t.Errorf("Pod Security restricted: %s: %s", result.ForbiddenReason, result.ForbiddenDetail)
		}
	}
	const label = "app.kubernetes.io/name"
	service := all.get(t, "Service", "kubeslot-ui")
	if selected := field(service, "spec", "selector", label); selected != template.Labels[label] {
		t.Errorf("the Service selects pods of %v, and the page's are of %v", selected, template.Labels)
	}
}

// Who may connect to the page is chosen apart from who reads metrics.
func TestPageNetworkPolicy(t *testing.T) {
	all := newHelm(t, 4).render(t, "--set", "ui.enabled=true", "--set-json",
		`networkPolicy={"enabled":true,"uiFrom":[{"podSelector":{"matchLabels":{"a":"b"}}}]}`)
	p := all.get(t, "NetworkPolicy", "kubeslot-ui")
	want := "[map[from:[map[podSelector:map[matchLabels:map[a:b]]]] ports:[map[port:https]]]]"
	if got := fmt.Sprint(field(p, "spec", "ingress")); got != want {
		t.Errorf("the policy lets in %s, want %s", got, want)
	}
	deployment := all.get(t, "Deployment", "kubeslot-ui")
	pods := field(deployment, "spec", "template", "metadata", "labels", "app.kubernetes.io/name")
	if selected := field(p, "spec", "podSelector", "matchLabels", "app.kubernetes.io/name"); selected != pods {
		t.Errorf("the policy selects pods of %v, and the page's are of %v", selected, pods)
	}
}

// seesPage opens the page in the cluster as a proxy does that sends users' tokens: what they see is what the API
// server allows them.
func (in *install) seesPage() {
	in.Helper()
	config, err := in.RESTConfig()
	in.check(err)
	client, err := rest.HTTPClientFor(config)
	in.check(err)
	page := func(token string) string { // through the API server's proxy of Services
		url := config.Host + "/api/v1/namespaces/" + namespace + "/services/https:kubeslot-ui:443/proxy/"
		request, err := http.NewRequestWithContext(in.ctx, http.MethodGet, url, nil)
		in.check(err)
		request.Header.Set("X-Forwarded-Access-Token", token)
		response, err := client.Do(request)
		in.check(err)
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		in.check(err)
		return response.Status + " " + string(body)
	}
	contains := func(token string, parts ...string) func() (bool, string) {
		return func() (bool, string) {
			got := page(token)
			return !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(got, p) }), got
		}
	}
	in.await("the page to refuse what is no token",
		contains("wrong", "401 ", "the API server does not accept the token"))
	token := in.kubectl("create", "token", "default", "-n", "default")
	in.await("the page to show nothing to who may see nothing", contains(token, "403 ", "configurations.akri.sh"))
	in.kubectl("create", "clusterrolebinding", "page", "--clusterrole=kubeslot:view",
		"--serviceaccount=default:default")
	in.await("the page for who may see it", contains(token, "200 ", `id="grid"`))
	in.kubectl("delete", "clusterrolebinding", "page")
}
