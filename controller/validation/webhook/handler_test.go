package webhook

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	"github.com/kubeslot/kubeslot/controller/validation"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

func handler(t *testing.T) *Handler {
	t.Helper()
	checker, err := validation.NewChecker(validation.Handlers())
	if err != nil {
		t.Fatal(err)
	}
	return &Handler{Checker: checker, Owner: func(types.NamespacedName) *akriv0.Configuration { return nil },
		HeldBeyond: heldBeyond, NoDRA: func() string { return "" }}
}

// heldBeyond is of five Instances whose slots 0 to 2 are held.
func heldBeyond(_ types.NamespacedName, capacity int) (int, []string) {
	if capacity >= 3 {
		return 0, nil
	}
	return 5 * (3 - capacity), []string{"cam-a", "cam-b", "cam-c", "cam-d", "cam-e"}
}

func review(t *testing.T, operation admissionv1.Operation, now, before string) admission.Request {
	t.Helper()
	r := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{UID: "u", Operation: operation, Namespace: "yard", Name: "cam"}}
	for _, o := range []struct {
		text string
		raw  *runtime.RawExtension
	}{{now, &r.Object}, {before, &r.OldObject}} {
		if o.text == "" {
			continue
		}
		var err error
		if o.raw.Raw, err = yaml.YAMLToJSONStrict([]byte("metadata: {namespace: yard, name: cam" + o.text)); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func TestHandle(t *testing.T) {
	const (
		good    = "}\nspec: {discoveryHandler: {name: sonar}}"
		bad     = "}\nspec: {discoveryHandler: {name: sonar}, brokerSpec: {brokerPodSpec: {containers: [{name: b, imagee: i}]}}}"
		badMore = "}\nspec: {capacity: 3, discoveryHandler: {name: sonar}, brokerSpec: {brokerPodSpec: {containers: [{name: b, imagee: i}]}}}"
		odd     = "}\nspec: {discoveryHandler: {name: sonar}, brokerSpec: {brokerPodSpec: {\"a\\nb\": 1}}}"
		oddMore = "}\nspec: {capacity: 3, discoveryHandler: {name: sonar}, brokerSpec: {brokerPodSpec: {\"a\\nb\": 1}}}"
		worse   = "}\nspec: {discoveryHandler: {name: sonar}, brokerSpec: {brokerPodSpec: {containers: [{name: b, imagee: i}], nodename: n}}}"
		imagee  = `spec.brokerSpec.brokerPodSpec.containers[0].imagee: Forbidden: unknown field; did you mean "image"?`
	)
	capacity := func(n int) string { return fmt.Sprintf("}\nspec: {capacity: %d, discoveryHandler: {name: sonar}}", n) }
	for name, tc := range map[string]struct {
		operation   admissionv1.Operation
		now, before string
		want        string // the refusal; "" when allowed
		warning     string // part of the only one
	}{
		"good":                  {operation: admissionv1.Create, now: good},
		"bad":                   {operation: admissionv1.Create, now: bad, want: imagee},
		"becomes bad":           {operation: admissionv1.Update, now: bad, before: good, want: imagee},
		"becomes good":          {operation: admissionv1.Update, now: good, before: bad},
		"stays bad, other spec": {operation: admissionv1.Update, now: badMore, before: bad, warning: imagee},
		"stays bad, same spec":  {operation: admissionv1.Update, now: ", labels: {a: b}" + bad, before: bad},
		"stays odd, on one line": {operation: admissionv1.Update, now: oddMore, before: odd,
			warning: "spec.brokerSpec.brokerPodSpec.a b: Forbidden"},
		"becomes worse":    {operation: admissionv1.Update, now: worse, before: bad, want: `spec.brokerSpec.brokerPodSpec.nodename: Forbidden: unknown field; did you mean "nodeName"?`, warning: imagee},
		"is being deleted": {operation: admissionv1.Update, now: `, deletionTimestamp: "2026-01-02T03:04:05Z"` + worse, before: bad},
		"deleted":          {operation: admissionv1.Delete, before: bad},
		"cannot be read": {operation: admissionv1.Create, now: "}\nspec: 7",
			warning: "was not checked: it cannot be read"},
		"lowered below what is held": {operation: admissionv1.Update, now: capacity(2), before: capacity(4),
			warning: "spec.capacity: 5 slots beyond 2 are in use (cam-a, cam-b and 3 more): pods keep them until " +
				"they end, and their containers do not start again; raise it again, or delete the pods"},
		"lowered to the usual one": {operation: admissionv1.Update, now: good, before: capacity(4),
			warning: "10 slots beyond 1"},
		"lowered to what is held":       {operation: admissionv1.Update, now: capacity(3), before: capacity(4)},
		"raised":                        {operation: admissionv1.Update, now: capacity(2), before: good},
		"the one before cannot be read": {operation: admissionv1.Update, now: bad, before: "}\nspec: 7", want: imagee},
	} {
		t.Run(name, func(t *testing.T) {
			r := handler(t).Handle(t.Context(), review(t, tc.operation, tc.now, tc.before))
			if r.Allowed != (tc.want == "") {
				t.Fatalf("allowed %t: %+v", r.Allowed, r.Result)
			}
			if !r.Allowed && (r.Result.Code != http.StatusUnprocessableEntity || r.Result.Reason != metav1.StatusReasonInvalid || r.Result.Message != tc.want) {
				t.Errorf("refused with %+v, want %q", r.Result, tc.want)
			}
			if len(r.Warnings) > 1 || (len(r.Warnings) == 1) != (tc.warning != "") || tc.warning != "" && !strings.Contains(r.Warnings[0], tc.warning) {
				t.Errorf("warnings %q, want %q", r.Warnings, tc.warning)
			}
		})
	}
}

// Clients find each field in the answer's causes, as in the API server's own.
func TestRefusalHasCauses(t *testing.T) {
	r := handler(t).Handle(t.Context(), review(t, admissionv1.Create, "}\nspec: {discoveryHandler: {name: sonar}, instanceServiceSpec: {ports: [{port: 0}], tipe: x}, brokerSpec: {brokerPodSpec: {containers: [{nam: a}, {image: 7}]}}}", ""))
	var fields []string
	for _, c := range r.Result.Details.Causes {
		fields = append(fields, string(c.Type)+" "+c.Field)
	}
	want := []string{"FieldValueForbidden spec.brokerSpec.brokerPodSpec.containers[0].nam", "FieldValueTypeInvalid spec.brokerSpec.brokerPodSpec.containers[1].image", "FieldValueForbidden spec.instanceServiceSpec.tipe"}
	if d := cmp.Diff(want, fields); d != "" || r.Result.Details.Name != "cam" || r.Result.Details.Kind != "Configuration" {
		t.Errorf("details %+v (-want +got):\n%s", r.Result.Details, d)
	}
}

// The webhook keeps nobody from working: what it fails on is let through, and said.
func TestPanicRefusesNothing(t *testing.T) {
	h := handler(t)
	h.Owner = func(types.NamespacedName) *akriv0.Configuration { panic("oops") }
	raw := review(t, admissionv1.Create, "}\nspec: {discoveryHandler: {name: sonar}}", "")
	if r := h.Handle(t.Context(), raw); !r.Allowed || len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "not checked") {
		t.Errorf("answer %+v", r)
	}
}

func TestNameOfAnother(t *testing.T) {
	h := handler(t)
	h.Owner = func(of types.NamespacedName) *akriv0.Configuration {
		if of == (types.NamespacedName{Namespace: "yard", Name: "cam"}) {
			return &akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: "gate", Name: "cam"}}
		}
		return nil
	}
	const good = "}\nspec: {discoveryHandler: {name: sonar}}"
	if r := h.Handle(t.Context(), review(t, admissionv1.Create, good, "")); !r.Allowed || len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "gate/cam has the name, which must be unique in the cluster: this one will find nothing; rename it") {
		t.Errorf("answer %+v", r)
	}
	if r := h.Handle(t.Context(), review(t, admissionv1.Update, "}\nspec: {capacity: 2, discoveryHandler: {name: sonar}}", good)); len(r.Warnings) != 0 {
		t.Errorf("each update warns: %q", r.Warnings)
	}
}

// A server that is too old for DRA refuses to begin with it, and nothing else.
func TestAllocatorDRA(t *testing.T) {
	const (
		dra   = "}\nspec: {allocator: DRA, discoveryHandler: {name: sonar}}"
		more  = "}\nspec: {allocator: DRA, capacity: 2, discoveryHandler: {name: sonar}}"
		slots = "}\nspec: {discoveryHandler: {name: sonar}}"
		node  = "}\nspec: {allocator: DRA, uniqueScope: Node, discoveryHandler: {name: sonar}}"
		old   = "spec.allocator: Forbidden: too old"
	)
	for name, tc := range map[string]struct {
		no, now, before, want, warning string
	}{
		"new":                   {now: dra},
		"new, too old":          {no: "too old", now: dra, want: old},
		"changed, too old":      {no: "too old", now: dra, before: slots, want: old},
		"has it, too old":       {no: "too old", now: more, before: dra},
		"gives it up":           {no: "too old", now: slots, before: dra},
		"a scope of uniqueness": {now: node, warning: "spec.uniqueScope: Node has no effect with allocator DRA"},
	} {
		t.Run(name, func(t *testing.T) {
			h, operation := handler(t), admissionv1.Create
			if tc.before != "" {
				operation = admissionv1.Update
			}
			h.NoDRA = func() string { return tc.no }
			r := h.Handle(t.Context(), review(t, operation, tc.now, tc.before))
			if r.Allowed != (tc.want == "") || !r.Allowed && r.Result.Message != tc.want {
				t.Errorf("allowed %t: %+v, want %q", r.Allowed, r.Result, tc.want)
			}
			if warnings := strings.Join(r.Warnings, "; "); !strings.HasPrefix(warnings, tc.warning) ||
				(warnings == "") != (tc.warning == "") {
				t.Errorf("warnings %q, want %q", warnings, tc.warning)
			}
		})
	}
}

// Whatever is sent, the answer is one that the API server can read.
func FuzzHandle(f *testing.F) {
	checker, err := validation.NewChecker(validation.Handlers())
	if err != nil {
		f.Fatal(err)
	}
	h := &Handler{Checker: checker, Owner: func(types.NamespacedName) *akriv0.Configuration { return nil },
		HeldBeyond: heldBeyond, NoDRA: func() string { return "too old" }}
	for _, seed := range []string{`{}`, `{"spec":{"discoveryHandler":{"name":"udev","discoveryDetails":"udevRules: ['KERNEL==']"}}}`, `[`,
		`{"spec":{"brokerSpec":{"brokerPodSpec":{"containers":[{"name":"b","image":"i","args":["{{NOPE}}"],"resources":{"limits":{"{{PLACEHOLDER}}":"1e99"}}}]}}}}`,
		`{"spec":{"brokerSpec":{"brokerJobSpec":{"template":7}},"configurationServiceSpec":{"ports":[{"port":"a"}]}}}`} {
		f.Add([]byte(seed), []byte(seed))
	}
	f.Fuzz(func(t *testing.T, now, before []byte) {
		r := h.Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Operation: admissionv1.Update,
			Object: runtime.RawExtension{Raw: now}, OldObject: runtime.RawExtension{Raw: before}}})
		if len(r.Warnings) > 0 && strings.Contains(r.Warnings[0], "check itself failed") {
			t.Fatalf("a panic: %s", now)
		}
		if _, err := json.Marshal(r.AdmissionResponse); err != nil {
			t.Fatal(err)
		}
	})
}
