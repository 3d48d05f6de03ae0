package brokers

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/third_party/forked/golang/expansion"
	"sigs.k8s.io/yaml"

	"github.com/kubeslot/kubeslot/controller/brokerspec"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

func podSpec(t *testing.T, text string) string {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func TestRenderPod(t *testing.T) {
	spec := podSpec(t, `
initContainers:
- name: wait
  resources: {requests: {"{{PLACEHOLDER}}": "2", cpu: 1m}}
containers:
- name: main
  command: [run, "--node={{NODE}}"]
  args: ["{{INSTANCE}}", "{{SLOT_COUNT}}", "{{.Go}} {{ jinja }} {{}} {single}"]
  env:
  - {name: WHO, value: "{{property:K}}-{{property:WIN}}"}
  - {name: FROM, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
  resources:
    limits: {"{{PLACEHOLDER}}": "3", akri.sh/other: "1"}
    requests: {"{{PLACEHOLDER}}": "3"}
- name: side
  args: ["{{SLOT_COUNT}}"]
affinity:
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms:
      - matchExpressions: [{key: disk, operator: Exists}]
      - {}
      - matchFields: [{key: metadata.name, operator: NotIn, values: [x]}]
`)
	f := newFacts(t, configuration(5, spec), "node-a")
	if f.spec.slots != 3 || !f.spec.asksForDevice || !f.spec.usesProperties {
		t.Errorf("spec %+v", f.spec)
	}
	before := f.spec.pod.DeepCopy()
	pod, err := renderPod(f, "node-a", 4)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(before, f.spec.pod); d != "" {
		t.Errorf("the spec, which all Instances share, was changed:\n%s", d)
	}
	got, err := yaml.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	want := `apiVersion: v1
metadata:
  annotations:
    kubeslot.io/broker-failures: "4"
    kubeslot.io/broker-properties: ` + f.propertiesHash() + `
    kubeslot.io/broker-spec: ` + f.spec.hash + `
  labels:
    akri.sh/configuration: cam
    akri.sh/instance: cam-8120fe
    akri.sh/target-node: node-a
    app: node-a-cam-8120fe-pod
    controller: akri.sh
  name: node-a-cam-8120fe-pod
  namespace: default
  ownerReferences:
  - apiVersion: akri.sh/v0
    controller: true
    kind: Instance
    name: cam-8120fe
    uid: instance-uid
spec:
  affinity:
    nodeAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        nodeSelectorTerms:
        - matchExpressions:
          - key: disk
            operator: Exists
          matchFields:
          - key: metadata.name
            operator: In
            values:
            - node-a
        - matchFields:
          - key: metadata.name
            operator: NotIn
            values:
            - x
          - key: metadata.name
            operator: In
            values:
            - node-a
  containers:
  - args:
    - cam-8120fe
    - "3"
    - '{{.Go}} {{ jinja }} {{}} {single}'
    command:
    - run
    - --node=node-a
    env:
    - name: WHO
      value: v-configuration
    - name: FROM
      valueFrom:
        fieldRef:
          fieldPath: spec.nodeName
    name: main
    resources:
      limits:
        akri.sh/cam-8120fe: "3"
        akri.sh/other: "1"
      requests:
        akri.sh/cam-8120fe: "3"
  - args:
    - "0"
    name: side
    resources: {}
  initContainers:
  - name: wait
    resources:
      limits:
        akri.sh/cam-8120fe: "2"
      requests:
        akri.sh/cam-8120fe: "2"
        cpu: 1m
`
	var wantPod corev1.Pod
	if err := yaml.UnmarshalStrict([]byte(want), &wantPod); err != nil {
		t.Fatal(err)
	}
	wantText, _ := yaml.Marshal(wantPod)
	if d := cmp.Diff(strings.Replace(string(wantText), "apiVersion: v1\n", "", 1), string(got)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	local := newFacts(t, configuration(1, onePod), "node-a")
	local.shared = false
	pod, err = renderPod(local, "node-a", 0)
	if err != nil || pod.Name != "cam-8120fe-pod" || len(pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms) != 1 || pod.Annotations["kubeslot.io/broker-failures"] != "" {
		t.Errorf("local: %+v, %v", pod, err)
	}
}

// A device's properties cannot name the broker's variables: what the kubelet makes of
// each text is the property as it is.
func TestPropertiesAreNotExpanded(t *testing.T) {
	const spec = `{"template":{"metadata":{"labels":{"l":"{{property:P}}"},"annotations":{"a":"{{property:P}}"}},"spec":{"containers":[{"name":"b",` +
		`"env":[{"name":"SECRET","value":"s"},{"name":"E","value":"$(SECRET) {{property:P}}"}],"command":["$${{property:P}}"],"args":["{{property:D}}{{property:P}}$(SECRET)"]}]}}}`
	for property, want := range map[string]string{"$(SECRET)": "$(SECRET)", "$$(SECRET)": "$$(SECRET)", "$": "$", "(SECRET)": "(SECRET)", "5 $": "5 $"} {
		f := newFacts(t, jobConfiguration(1, spec), "a")
		f.properties = map[string]string{"P": property, "D": "$"}
		job, err := renderJob(f)
		if err != nil {
			t.Fatal(err)
		}
		c := job.Spec.Template.Spec.Containers[0]
		variables := expansion.MappingFuncFor(map[string]string{"SECRET": "s"})
		for text, want := range map[string]string{c.Env[1].Value: "s " + want, c.Command[0]: "$" + want, c.Args[0]: "$" + want + "s"} {
			if got := expansion.Expand(text, variables); got != want {
				t.Errorf("%q: the kubelet makes %q of %q, want %q", property, got, text, want)
			}
		}
		if l, a := job.Spec.Template.Labels["l"], job.Spec.Template.Annotations["a"]; l != property || a != property {
			t.Errorf("%q: label %q, annotation %q", property, l, a)
		}
	}
}

func TestTemplatesThatAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"{{UNKNOWN}}":             "unknown template {{UNKNOWN}}",
		"{{PLACEHOLDER}}":         "unknown template",
		"{{property:}}":           `no property ""`,
		"{{property:k}}":          `no property "k"; there are "K", "WIN"`,
		"{{INSTANC}}":             "{{property:NAME}}; did you mean {{INSTANCE}}?",
		"{{NODES}}":               "{{property:NAME}}; did you mean {{NODE}}?",
		"a{{NODE}}{{NOPE_2}}":     "{{NOPE_2}}",
		"a${{property:K}}":        "names a variable",
		"$$$({{property:K}})":     "names a variable",
		"$(KEY_{{property:K}})":   "names a variable", // which of several Secrets, a device would say
		"$(A) $(B {{property:K}}": "names a variable",
	} {
		f := newFacts(t, configuration(1, `{"containers":[{"name":"a"},{"name":"b","env":[{"name":"E","value":"`+text+`"}]}]}`), "a")
		_, err := renderPod(f, "a", 0)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "containers[1].env[0].value") {
			t.Errorf("%s: error %v, want the place and %q", text, err, want)
		}
	}
}

// The properties that there are, in order, and not more of them than can be read.
func TestNamesOfProperties(t *testing.T) {
	many := map[string]string{strings.Repeat("é", 1000): ""}
	for i := range 20 {
		many[fmt.Sprintf("A%02d", i)] = "secret"
	}
	for want, properties := range map[string]map[string]string{
		"there is none":        nil,
		`there are "A", "a\n"`: {"a\n": "v", "A": "w"},
		`there are "` + strings.Repeat("é", maxNameRunes-1) + `…"`:                                   {strings.Repeat("é", 1000): ""},
		`there are "A00", "A01", "A02", "A03", "A04", "A05", "A06", "A07", "A08", "A09" and 11 more`: many,
	} {
		if got := namesOf(properties); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// A spec that names its node, or whose affinity nobody can read, is refused with its
// path and what to do.
func TestNodesThatAreRefused(t *testing.T) {
	const affinity = `{"containers":[{"name":"b"}],"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[` +
		`{"matchExpressions":[{"key":"disk","operator":"Exists"}]},{"matchExpressions":[{"key":"name","operator":"%s","values":["a"]}]}]}}}}`
	for spec, want := range map[string]string{
		`{"nodeName":"a","containers":[{"name":"b"}]}`: `spec.brokerSpec.brokerPodSpec.nodeName: Forbidden: the controller chooses the node; use nodeSelector or affinity`,
		fmt.Sprintf(affinity, "in"):                    `spec.brokerSpec.brokerPodSpec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[1].matchExpressions[0].operator: Unsupported value: "in"`,
		fmt.Sprintf(affinity, "In"):                    "",
	} {
		p := decide(newFacts(t, configuration(1, spec), "a"))
		if want == "" {
			if p.problem != nil || len(p.create) != 1 {
				t.Errorf("%s: %q, problem %v", spec, p.show(), p.problem)
			}
			continue
		}
		if p.problem == nil || p.problem.Reason != InvalidSpec || !strings.HasPrefix(p.problem.Message, want) || len(p.create)+len(p.remove) > 0 {
			t.Errorf("%s: %q, problem %v, want %q", spec, p.show(), p.problem, want)
		}
	}
}

// The controller's scheduler is that of brokers which name none; brokers that run stay
// when it changes.
func TestScheduler(t *testing.T) {
	for spec, want := range map[string]string{`{"containers":[{"name":"b"}]}`: "ours", `{"schedulerName":"own","containers":[{"name":"b"}]}`: "own"} {
		f := newFacts(t, configuration(1, spec), "a", brokerPod("a", "Ready"))
		f.scheduler = "ours"
		if got := decide(f).show(); got != "" {
			t.Errorf("a broker that runs: %q", got)
		}
		pod, err := renderPod(f, "a", 0)
		if err != nil || pod.Spec.SchedulerName != want || f.spec.pod.SchedulerName == "ours" {
			t.Errorf("pod of %s: %v, %+v, want scheduler %q", spec, err, pod, want)
		}
		f = newFacts(t, jobConfiguration(1, `{"template":{"spec":`+spec+`}}`), "a")
		f.scheduler = "ours"
		job, err := renderJob(f)
		if err != nil || job.Spec.Template.Spec.SchedulerName != want {
			t.Errorf("Job of %s: %v, %+v, want scheduler %q", spec, err, job, want)
		}
	}
	r := newRig(t, theInstance())
	r.SchedulerName = "ours"
	r.inv.SetConfiguration(configuration(1, onePod))
	r.found("a")
	if r.settle(); len(r.pods()) != 1 || r.pods()[0].Spec.SchedulerName != "ours" {
		t.Errorf("made %+v", r.pods())
	}
}

// What a Configuration says of its brokers has another hash exactly when it means
// something else.
func TestSpecHash(t *testing.T) {
	of := func(spec, property string) string {
		c := configuration(1, spec)
		c.Spec.BrokerProperties = map[string]string{"K": property}
		return parse(c).hash
	}
	if of(onePod, "v") != of(" "+strings.Replace(onePod, `"name":"b","image":"i"`, `"image" : "i", "name":"b"`, 1), "v") {
		t.Error("another way to write it is another spec")
	}
	if of(onePod, "v") == of(onePod, "w") || of(onePod, "v") == of(strings.Replace(onePod, `"i"`, `"j"`, 1), "v") {
		t.Error("another property, or image, is the same spec")
	}
	const without = `{"containers":[{"name":"b"}]}`
	if of(without, "v") != of(without, "w") {
		t.Error("a broker that gets no properties is another with others")
	}
	const templated = `{"containers":[{"name":"b","args":["{{property:K}}"]}]}`
	if of(templated, "v") == of(templated, "w") {
		t.Error("a broker with a property in a template is the same with another")
	}
	if parse(configuration(1, "")) != nil || parse(configuration(1, "null")) != nil {
		t.Error("no spec is one")
	}
}

// Akri's sample Configurations, as its charts have them, are understood as they are.
func TestAkrisSamples(t *testing.T) {
	for file, want := range map[string]struct {
		slots int64
		job   bool
	}{"onvif": {1, false}, "opcua": {1, false}, "udev": {1, false}, "job": {1, true}} {
		c := &akriv0.Configuration{}
		readYAML(t, "../../types/akri/v0/testdata/"+file+".yaml", c)
		s := parse(c)
		if s == nil || s.err != nil || s.slots != want.slots || (s.job != nil) != want.job || !s.asksForDevice {
			t.Errorf("%s: %+v", file, s)
		}
	}
}

// No spec, however odd, panics: it is somebody else's input.
func FuzzBrokerSpec(f *testing.F) {
	f.Add(onePod)
	f.Add(`{"containers":[{"name":"b","args":["{{NODE}}{{property:x}}"],"resources":{"limits":{"{{PLACEHOLDER}}":"-1e30"}}}],"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{},{"matchExpressions":[{"key":"\u0000"}]}]}}}}`)
	f.Add(`{"initContainers":[{"restartPolicy":"Always","resources":{"requests":{"{{PLACEHOLDER}}":"9223372036854775807"}}}]}`)
	f.Fuzz(func(t *testing.T, spec string) {
		for _, job := range []bool{false, true} {
			c := configuration(2, spec)
			if job {
				c.Spec.BrokerSpec = &akriv0.BrokerSpec{BrokerJobSpec: &runtime.RawExtension{Raw: []byte(`{"template":{"spec":` + spec + `}}`)}}
			}
			facts := newFacts(t, c, "a b")
			p := decide(facts)
			for _, pod := range p.create {
				if pod.Spec.Affinity == nil || len(pod.OwnerReferences) != 1 {
					t.Errorf("%s is not pinned, or nobody's", pod.Name)
				}
			}
			decideJobs(facts, nil)
		}
	})
}

func TestExpandMap(t *testing.T) {
	in := map[string]string{"a": "{{INSTANCE}}", "b": "plain"}
	out, err := expandMap(brokerspec.Values{Instance: "i"}, "labels", in, 0)
	if err != nil || !maps.Equal(out, map[string]string{"a": "i", "b": "plain"}) || in["a"] != "{{INSTANCE}}" {
		t.Errorf("%v, %v; the input is %v now", out, err, in)
	}
	_, err = expandMap(brokerspec.Values{}, "labels", map[string]string{"a": "{{NODE}}"}, 0)
	if err == nil || !slices.Contains(strings.Fields(err.Error()), "labels[a]:") {
		t.Errorf("a Job's node: %v", err)
	}
}
