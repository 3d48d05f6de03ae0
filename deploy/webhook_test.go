package deploy

import (
	"context"
	"os"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/yaml"

	"github.com/kubeslot/kubeslot/controller/validation/webhook"
)

func theWebhook(t *testing.T) *admissionv1.ValidatingWebhook {
	t.Helper()
	data, err := os.ReadFile("webhook.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var c admissionv1.ValidatingWebhookConfiguration
	if err := yaml.UnmarshalStrict(data, &c); err != nil {
		t.Fatal(err)
	}
	if c.Name != webhook.ConfigurationName || len(c.Webhooks) != 1 || c.Webhooks[0].Name != webhook.Name {
		t.Fatalf("%s with %d webhooks is not what the controller looks for", c.Name, len(c.Webhooks))
	}
	return &c.Webhooks[0]
}

// The webhook is a help: it must keep nobody from working while it is down.
func TestWebhookFailsOpen(t *testing.T) {
	w := theWebhook(t)
	if *w.FailurePolicy != admissionv1.Ignore || *w.TimeoutSeconds > 3 || *w.SideEffects != admissionv1.SideEffectClassNone || w.ClientConfig.CABundle != nil {
		t.Errorf("failurePolicy %s, timeout %d s, side effects %s, caBundle %q", *w.FailurePolicy, *w.TimeoutSeconds, *w.SideEffects, w.ClientConfig.CABundle)
	}
	if want := "https://127.0.0.1:10362" + webhook.Path; *w.ClientConfig.URL != want {
		t.Errorf("leads to %s, want %s", *w.ClientConfig.URL, want)
	}
}

// API servers do not call it for what the controller and others write besides the spec.
func TestWhatTheWebhookIsAsked(t *testing.T) {
	w := theWebhook(t)
	var conditions []cel.ExpressionAccessor
	for i := range w.MatchConditions {
		conditions = append(conditions, (*matchconditions.MatchCondition)(&w.MatchConditions[i]))
	}
	compiled := cel.NewConditionCompiler(environment.MustBaseEnvSet(oldest)).CompileCondition(conditions, cel.OptionalVariableDeclarations{HasAuthorizer: true}, environment.NewExpressions)
	for _, err := range compiled.CompilationErrors() {
		t.Error(err)
	}
	matcher := matchconditions.NewMatcher(compiled, w.FailurePolicy, "webhook", "validate", w.Name)
	const spec, other = "spec: {capacity: 1, discoveryHandler: {name: a}}", "spec: {capacity: 2, discoveryHandler: {name: a}}"
	for name, tc := range map[string]struct {
		object, old string
		want        bool
	}{
		"made":                {object: "metadata: {name: c}\n" + spec, want: true},
		"changed":             {object: "metadata: {name: c}\n" + other, old: "metadata: {name: c}\n" + spec, want: true},
		"labelled":            {object: "metadata: {name: c, labels: {a: b}}\n" + spec, old: "metadata: {name: c}\n" + spec},
		"a finalizer less":    {object: "metadata: {name: c}\n" + spec, old: "metadata: {name: c, finalizers: [node-a]}\n" + spec},
		"others' annotations": {object: "metadata: {name: c, annotations: {a: b}}\n" + spec, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			kind := schema.GroupVersionKind{Group: "akri.sh", Version: "v0", Kind: "Configuration"}
			resource := schema.GroupVersionResource{Group: "akri.sh", Version: "v0", Resource: "configurations"}
			object, old := decode(t, tc.object), decode(t, tc.old)
			attributes := &admission.VersionedAttributes{VersionedKind: kind, VersionedObject: admission.NewLazyObject(object)}
			operation := admission.Create
			if old != nil {
				attributes.VersionedOldObject.Set(old)
				operation = admission.Update
			}
			attributes.Attributes = admission.NewAttributesRecord(object, attributes.VersionedOldObject.Object(), kind, "default", "c", resource, "", operation, nil, false, &user.DefaultInfo{Name: "eve"})
			result := matcher.Match(context.Background(), attributes, nil, rights{})
			if result.Error != nil || result.Matches != tc.want {
				t.Errorf("asked: %t (%s), %v", result.Matches, result.FailedConditionName, result.Error)
			}
		})
	}
}
