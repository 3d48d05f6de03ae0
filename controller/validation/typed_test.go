package validation

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"pgregory.net/rapid"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

func errorsOf(errs field.ErrorList) []string {
	var texts []string
	for _, err := range errs {
		texts = append(texts, err.Error())
	}
	return texts
}

// Each field that is wrong is named with its path, also several at once and those in
// lists, which the API server's own decoder does not number.
func TestDecode(t *testing.T) {
	for name, tc := range map[string]struct {
		into any
		spec string
		want []string
	}{
		"a pod": {&corev1.PodSpec{}, `
volumes: [{name: v, hostPath: {path: /dev}}]
containers:
- {name: a, image: b, resources: {limits: {"{{PLACEHOLDER}}": "1", cpu: 0.5, memory: 10Mi}}, livenessProbe: {httpGet: {path: /, port: http}, initialDelaySeconds: 5}}
securityContext: {runAsUser: 0}
terminationGracePeriodSeconds: null`, nil},
		"a Job":             {&batchv1.JobSpec{}, `{parallelism: 1, template: {metadata: {labels: {a: b}}, spec: {containers: []}}, backoffLimit: 4}`, nil},
		"a Service":         {&corev1.ServiceSpec{}, `{type: ClusterIP, ports: [{name: a, port: 80, targetPort: 8083}, {name: b, port: 81, targetPort: http}]}`, nil},
		"misspelt":          {&corev1.PodSpec{}, `{containers: [{name: a}, {name: b, imagee: c}]}`, []string{`spec.containers[1].imagee: Forbidden: unknown field; did you mean "image"?`}},
		"other case":        {&corev1.PodSpec{}, `{Containers: []}`, []string{`spec.Containers: Forbidden: unknown field; did you mean "containers"?`}},
		"of another object": {&corev1.PodSpec{}, `{containers: [], replicas: 3}`, []string{`spec.replicas: Forbidden: unknown field`}},
		"several": {&corev1.PodSpec{}, `{containers: [{name: 7, ports: [{containerPort: "80"}], env: {A: b}}], hostNetwork: "yes"}`, []string{
			`spec.containers[0].env: Invalid value: want a list`,
			`spec.containers[0].name: Invalid value: 7: want a string: put it in quotes`,
			`spec.containers[0].ports[0].containerPort: Invalid value: "80": want an integer, without quotes`,
			`spec.hostNetwork: Invalid value: "yes": want true or false, without quotes`}},
		"in a map":         {&corev1.PodSpec{}, `{nodeSelector: {zone: 1}}`, []string{`spec.nodeSelector[zone]: Invalid value: 1: want a string: put it in quotes`}},
		"a quantity":       {&corev1.PodSpec{}, `{containers: [{resources: {limits: {cpu: fast}}}]}`, []string{`spec.containers[0].resources.limits[cpu]: Invalid value: "fast": quantities must match`}},
		"neither":          {&corev1.ServiceSpec{}, `{ports: [{port: 80, targetPort: {a: b}}]}`, []string{`spec.ports[0].targetPort: Invalid value: json: cannot unmarshal object`}},
		"a fraction":       {&corev1.PodSpec{}, `{priority: 1.5}`, []string{`spec.priority: Invalid value: 1.5: want an integer`}},
		"too large":        {&corev1.PodSpec{}, `{priority: 3000000000}`, []string{`spec.priority: Invalid value: 3000000000: want an integer of 32 bits`}},
		"no object":        {&corev1.PodSpec{}, `[]`, []string{`spec: Invalid value: want an object`}},
		"a string for all": {&corev1.PodSpec{}, `nginx`, []string{`spec: Invalid value: "nginx": want an object`}},
		"a long text":      {&corev1.PodSpec{}, `{priority: "` + strings.Repeat("x", 500) + `"}`, []string{`spec.priority: Invalid value: "` + strings.Repeat("x", 64) + `…": want an integer`}},
		"hostile":          {&corev1.PodSpec{}, `{"a b\n\"c": {}}`, []string{"spec.a b\n\"c: Forbidden: unknown field"}},
	} {
		t.Run(name, func(t *testing.T) {
			raw, err := yaml.YAMLToJSON([]byte(tc.spec))
			if err != nil {
				t.Fatal(err)
			}
			got := errorsOf(decode(field.NewPath("spec"), raw, tc.into))
			if len(got) != len(tc.want) {
				t.Fatalf("got %q, want %q", got, tc.want)
			}
			for i := range got {
				if !strings.HasPrefix(got[i], tc.want[i]) {
					t.Errorf("got %q, want %q", got[i], tc.want[i])
				}
			}
		})
	}
	many := map[string]int{}
	for i := range 1000 {
		many[fmt.Sprint("x", i)] = i
	}
	raw, err := json.Marshal(many)
	if err != nil {
		t.Fatal(err)
	}
	if errs := decode(field.NewPath("spec"), raw, &corev1.PodSpec{}); len(errs) != maxTypedErrors {
		t.Errorf("%d errors of an object with 1000 unknown fields, want %d", len(errs), maxTypedErrors)
	}
	if errs := decode(field.NewPath("spec"), []byte(`{`), &corev1.PodSpec{}); len(errs) != 1 {
		t.Errorf("no JSON: %v", errs)
	}
}

// The walk over types and the decoder that the controller makes brokers with agree on
// what is wrong, whatever a user writes in any field of the three specs.
func TestDecodeRefusesWhatTheDecoderRefuses(t *testing.T) {
	roots := []reflect.Type{reflect.TypeFor[corev1.PodSpec](), reflect.TypeFor[batchv1.JobSpec](), reflect.TypeFor[corev1.ServiceSpec]()}
	refused, taken := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		root := rapid.SampledFrom(roots).Draw(t, "type")
		raw, err := json.Marshal(drawValue(t, root, 0))
		if err != nil {
			t.Fatal(err)
		}
		unknown, err := kjson.UnmarshalStrict(raw, reflect.New(root).Interface())
		want := err != nil || len(unknown) > 0
		w := &walker{}
		var value any
		if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &value); err != nil {
			t.Fatal(err)
		}
		if w.walk(field.NewPath("spec"), root, value); (len(w.errs) > 0) != want {
			t.Fatalf("%s: errors %q; the decoder says %v, %v", raw, errorsOf(w.errs), err, unknown)
		}
		if want {
			refused++
		} else {
			taken++
		}
	})
	if refused == 0 || taken == 0 {
		t.Errorf("%d refused, %d taken: the drawn values tell nothing", refused, taken)
	}
}

// drawValue draws a value that a type could have, and seldom one that it could not.
func drawValue(t *rapid.T, of reflect.Type, depth int) any {
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	odd := []any{nil, "text", "7", int64(7), 1.5, true, []any{}, []any{int64(1)}, map[string]any{}, map[string]any{"name": "x"}, int64(1) << 40, -1}
	if rapid.IntRange(0, 30).Draw(t, "odd") == 0 {
		return rapid.SampledFrom(odd).Draw(t, "value")
	}
	if reflect.PointerTo(of).Implements(unmarshaler) {
		return rapid.SampledFrom([]any{"1", int64(1), "http", "2026-01-02T03:04:05Z", "2026-01-02T03:04:05.000000Z", nil, true}).Draw(t, "value")
	}
	few := rapid.IntRange(0, 2)
	switch of.Kind() {
	case reflect.Struct:
		object := map[string]any{}
		fields := fieldsOf(of)
		if depth > 7 || len(fields) == 0 { // such as the disruption mode "all" of a Job's pod group
			return object
		}
		names := make([]string, 0, len(fields))
		for name := range fields {
			names = append(names, name)
		}
		slices.Sort(names)
		for range rapid.IntRange(0, 4).Draw(t, "fields") {
			name := rapid.SampledFrom(names).Draw(t, "field")
			object[name] = drawValue(t, fields[name], depth+1)
		}
		if rapid.IntRange(0, 40).Draw(t, "unknown") == 0 {
			object[rapid.SampledFrom([]string{"Name", "x", "", "containerss"}).Draw(t, "name")] = "x"
		}
		return object
	case reflect.Map:
		object := map[string]any{}
		for range few.Draw(t, "entries") {
			object[rapid.SampledFrom([]string{"a", "b/c", ""}).Draw(t, "key")] = drawValue(t, of.Elem(), depth+1)
		}
		return object
	case reflect.Slice:
		list := []any{}
		for range few.Draw(t, "items") {
			list = append(list, drawValue(t, of.Elem(), depth+1))
		}
		return list
	case reflect.String:
		return rapid.SampledFrom([]string{"", "a", "{{NODE}}"}).Draw(t, "text")
	case reflect.Bool:
		return rapid.Bool().Draw(t, "bool")
	}
	return rapid.SampledFrom([]int64{0, 1, -1, 65536}).Draw(t, "number")
}
