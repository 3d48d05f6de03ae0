// Package deploy tests what deploy/ allows: its policies' expressions, as the API
// server evaluates them.
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

	celgo "github.com/google/cel-go/cel"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/yaml"
)

// oldest is the oldest API server that the policies must work with.
var oldest = version.MajorMinor(1, 33)

// policies are those of a file, by name, compiled.
func policies(t *testing.T, file string) map[string]*policy {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*policy{}
	bound := map[string]bool{}
	for documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data))); ; {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		var p admissionv1.ValidatingAdmissionPolicy
		if err := yaml.Unmarshal(document, &p); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if p.Kind == "ValidatingAdmissionPolicyBinding" {
			var b admissionv1.ValidatingAdmissionPolicyBinding
			if err := yaml.UnmarshalStrict(document, &b); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			bound[b.Spec.PolicyName] = true
			continue
		}
		if err := yaml.UnmarshalStrict(document, &p); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all[p.Name] = compile(t, &p)
	}
	for name := range all {
		if !bound[name] {
			t.Errorf("%s: policy %s has no binding, and does nothing", file, name)
		}
	}
	return all
}

type policy struct {
	spec      *admissionv1.ValidatingAdmissionPolicySpec
	validator validating.Validator
}

type variable admissionv1.Variable

func (v *variable) GetExpression() string      { return v.Expression }
func (v *variable) ReturnTypes() []*celgo.Type { return []*celgo.Type{celgo.AnyType, celgo.DynType} }
func (v *variable) GetName() string            { return v.Name }

// compile is what the API server's plugin does, which does not export it.
func compile(t *testing.T, p *admissionv1.ValidatingAdmissionPolicy) *policy {
	t.Helper()
	compiler, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(oldest))
	if err != nil {
		t.Fatal(err)
	}
	declared := cel.OptionalVariableDeclarations{HasAuthorizer: true, HasParams: p.Spec.ParamKind != nil}
	check := func(what string, r cel.ConditionEvaluator) cel.ConditionEvaluator {
		for _, err := range r.CompilationErrors() {
			t.Errorf("policy %s: %s: %v", p.Name, what, err)
		}
		return r
	}
	for _, v := range p.Spec.Variables {
		if r := compiler.CompileAndStoreVariable((*variable)(&v), declared, environment.NewExpressions); r.Error != nil {
			t.Errorf("policy %s: variable %s: %v", p.Name, v.Name, r.Error)
		}
	}
	var conditions, validations, messages []cel.ExpressionAccessor
	for i := range p.Spec.MatchConditions {
		conditions = append(conditions, (*matchconditions.MatchCondition)(&p.Spec.MatchConditions[i]))
	}
	for _, v := range p.Spec.Validations {
		validations = append(validations, &validating.ValidationCondition{Expression: v.Expression, Message: v.Message})
		var message cel.ExpressionAccessor
		if v.MessageExpression != "" {
			message = &validating.MessageExpressionCondition{MessageExpression: v.MessageExpression}
		}
		messages = append(messages, message)
	}
	matcher := matchconditions.NewMatcher(check("matchConditions", compiler.CompileCondition(conditions, declared, environment.NewExpressions)),
		p.Spec.FailurePolicy, "policy", "validate", p.Name)
	ofMessages := cel.OptionalVariableDeclarations{HasParams: declared.HasParams}
	return &policy{spec: &p.Spec, validator: validating.NewValidator(
		check("validations", compiler.CompileCondition(validations, declared, environment.NewExpressions)), matcher,
		compiler.CompileCondition(nil, declared, environment.NewExpressions),
		check("messages", compiler.CompileCondition(messages, ofMessages, environment.NewExpressions)),
		p.Spec.FailurePolicy, nil)}
}

// request is one that somebody makes; object and old are YAML, "" for none.
type request struct {
	by          *user.DefaultInfo
	resource    schema.GroupVersionResource
	kind        string
	subresource string
	object, old string
	// collection is one of a DELETE of many: the API server asks about each, and the request has no name.
	collection bool
	// may are the rights of who makes it, as "verb resource.group namespace".
	may rights
	// params is the parameter, and namespace that of the object; nil for none.
	params    runtime.Object
	namespace *corev1.Namespace
}

type rights []string

// Authorize implements authorizer.Authorizer.
func (r rights) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if slices.Contains(r, fmt.Sprintf("%s %s %s", a.GetVerb(), schema.GroupResource{Group: a.GetAPIGroup(), Resource: a.GetResource()}, a.GetNamespace())) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionDeny, "", nil
}

// refusal returns why the policy denies the request; "" when it does not.
func (p *policy) refusal(t *testing.T, r request) string {
	t.Helper()
	for _, d := range p.decide(t, r, celconfig.RuntimeCELCostBudget) {
		if d.Evaluation == validating.EvalError {
			return "ERROR: " + d.Message
		}
		if d.Action == validating.ActionDeny {
			return d.Message
		}
	}
	return ""
}

// decide evaluates the policy with a budget of CEL's units of cost.
func (p *policy) decide(t *testing.T, r request, budget int64) []validating.PolicyDecision {
	t.Helper()
	object, old := decode(t, r.object), decode(t, r.old)
	operation, named := admission.Update, object
	switch {
	case old == nil:
		operation = admission.Create
	case object == nil:
		operation, named = admission.Delete, old
	}
	if !p.covers(r, operation) {
		return nil
	}
	kind := r.resource.GroupVersion().WithKind(r.kind)
	attributes := &admission.VersionedAttributes{VersionedKind: kind}
	// A nil *Unstructured in an interface is an object, and not none.
	if object != nil {
		attributes.VersionedObject.Set(object)
	}
	if old != nil {
		attributes.VersionedOldObject.Set(old)
	}
	name := named.GetName()
	if r.collection {
		name = ""
	}
	attributes.Attributes = admission.NewAttributesRecord(attributes.VersionedObject.Object(), attributes.VersionedOldObject.Object(), kind,
		named.GetNamespace(), name, r.resource, r.subresource, operation, nil, false, r.by)
	result := p.validator.Validate(context.Background(), r.resource, attributes, r.params, r.namespace, budget, r.may)
	return result.Decisions
}

// covers reports whether the policy is for such requests.
func (p *policy) covers(r request, operation admission.Operation) bool {
	resource := strings.TrimSuffix(r.resource.Resource+"/"+r.subresource, "/")
	for _, rule := range p.spec.MatchConstraints.ResourceRules {
		if slices.Contains(rule.APIGroups, r.resource.Group) && slices.Contains(rule.APIVersions, r.resource.Version) && slices.Contains(rule.Resources, resource) &&
			slices.Contains(rule.Operations, admissionv1.OperationType(operation)) {
			return true
		}
	}
	return false
}

func decode(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	if text == "" {
		return nil
	}
	content := map[string]any{}
	if err := yaml.UnmarshalStrict([]byte(text), &content); err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	return &unstructured.Unstructured{Object: content}
}
