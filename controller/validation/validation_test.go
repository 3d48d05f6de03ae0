package validation

import (
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/test/docs"
	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

func checker(t *testing.T) *Checker {
	t.Helper()
	c, err := NewChecker(Handlers())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func configuration(t *testing.T, spec string) *akriv0.Configuration {
	t.Helper()
	c := &akriv0.Configuration{}
	if err := yaml.UnmarshalStrict([]byte(spec), &c.Spec); err != nil {
		t.Fatalf("%v:\n%s", err, spec)
	}
	return c
}

// What is wrong is named with its field; what is odd is told as a warning.
func TestCheck(t *testing.T) {
	const (
		handler  = "discoveryHandler: {name: sonar}\n"
		device   = `resources: {limits: {"{{PLACEHOLDER}}": "1"}}`
		noDevice = "spec.brokerSpec.brokerPodSpec: no container requests {{PLACEHOLDER}}: brokers run without the device"
	)
	pod := func(containers string) string { return handler + "brokerSpec: {brokerPodSpec: {" + containers + "}}" }
	one := func(more string) string {
		return pod("containers: [{name: b, image: i, " + device + more + "}]")
	}
	job := func(template string) string {
		return handler + "brokerSpec: {brokerJobSpec: {template: {" + template + "}}}"
	}
	service := func(spec string) string { return one("") + "\ninstanceServiceSpec: " + spec }
	for name, tc := range map[string]struct {
		spec             string
		errors, warnings []string // the beginnings, in this order
	}{
		"no broker":  {spec: handler},
		"nulls":      {spec: handler + "brokerSpec: {brokerPodSpec: null}\ninstanceServiceSpec: null\ndiscovery: null"},
		"a broker":   {spec: one("")},
		"a roll-out": {spec: one("") + "\nbrokerUpdate: {maxUnavailable: 10%, paused: true}"},
		"no maxUnavailable": {spec: one("") + "\nbrokerUpdate: {maxUnavailable: 0}",
			errors: []string{`spec.brokerUpdate.maxUnavailable: Invalid value: "0": want a number of nodes from 1 to 100000, or 1% to 100%`}},
		"a per cent of nothing": {spec: one("") + "\nbrokerUpdate: {maxUnavailable: 0%}",
			errors: []string{`spec.brokerUpdate.maxUnavailable: Invalid value: "0%": want`}},
		"requests alone":    {spec: pod(`containers: [{name: b, image: i, resources: {requests: {"{{PLACEHOLDER}}": "1"}}}]`)},
		"the kind's device": {spec: pod(`containers: [{name: b, image: i, resources: {limits: {akri.sh/cam: "2"}}}]`)},
		"unknown field":     {spec: pod("containers: [{name: b, imagee: i}]"), errors: []string{`spec.brokerSpec.brokerPodSpec.containers[0].imagee: Forbidden: unknown field; did you mean "image"?`}},
		"without a device":  {spec: pod("containers: [{name: b, image: i}]"), warnings: []string{noDevice}},
		"no container":      {spec: pod("containers: []"), errors: []string{"spec.brokerSpec.brokerPodSpec.containers: Required value"}, warnings: []string{noDevice}},
		"no name, no image": {spec: pod("containers: [{" + device + "}]"), errors: []string{"spec.brokerSpec.brokerPodSpec.containers[0].name: Required", "spec.brokerSpec.brokerPodSpec.containers[0].image: Required"}},
		"a bad name":        {spec: pod("containers: [{name: UPPER, image: i, " + device + "}]"), errors: []string{`spec.brokerSpec.brokerPodSpec.containers[0].name: Invalid value: "UPPER"`}},
		"a name twice": {spec: pod("initContainers: [{name: b, image: i}], containers: [{name: b, image: i, " + device + "}]"),
			errors: []string{`spec.brokerSpec.brokerPodSpec.containers[0].name: Duplicate value: "b"`}},
		"a node's name": {spec: pod("nodeName: node-a, containers: [{name: b, image: i, " + device + "}]"), errors: []string{"spec.brokerSpec.brokerPodSpec.nodeName: Forbidden: the controller chooses"}},
		"the controller's claim": {spec: pod("resourceClaims: [{name: gpu}, {name: kubeslot}], " +
			"containers: [{name: b, image: i, " + device + "}]"),
			errors: []string{`spec.brokerSpec.brokerPodSpec.resourceClaims[1].name: Invalid value: "kubeslot": ` +
				`the controller calls`}},
		"an affinity that cannot be read": {spec: pod("affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Near}]}]}}}, containers: [{name: b, image: i, " + device + "}]"),
			errors: []string{`spec.brokerSpec.brokerPodSpec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].operator: `}},
		"templates": {spec: one(`, args: ["{{INSTANCE}}", "{{NODE}} {{SLOT_COUNT}}", "{{property:A}}", "{{ jinja }}", "{{.Go}}", "$${{property:A}}"]`)},
		"an unknown template": {spec: one(`, env: [{name: A, value: ok}, {name: B, value: "x{{NOPE}}"}], command: ["{{PLACEHOLDER}}"]`), errors: []string{
			`spec.brokerSpec.brokerPodSpec.containers[0].env[1].value: Invalid value: "x{{NOPE}}": unknown template {{NOPE}}; there are {{INSTANCE}}`,
			`spec.brokerSpec.brokerPodSpec.containers[0].command[0]: Invalid value: "{{PLACEHOLDER}}": unknown template`}},
		"a property as a variable": {spec: one(`, args: ["$({{property:A}})"]`), errors: []string{`spec.brokerSpec.brokerPodSpec.containers[0].args[0]: Invalid value: "$({{property:A}})": a property after $`}},
		"a property without name":  {spec: one(`, args: ["{{property:}}"]`), errors: []string{`spec.brokerSpec.brokerPodSpec.containers[0].args[0]: Invalid value: "{{property:}}": {{property:}} names no property`}},
		"more slots than capacity": {spec: "capacity: 2\n" + pod(`containers: [{name: b, image: i, resources: {limits: {"{{PLACEHOLDER}}": "3"}}}]`),
			errors: []string{"spec.brokerSpec.brokerPodSpec: Invalid value: the broker requests 3 slots of its Instance, which has 2"}},
		"as many as capacity, in two containers": {spec: "capacity: 2\n" + pod("containers: [{name: b, image: i, "+device+"}, {name: c, image: i, "+device+"}]")},
		"init containers run before":             {spec: "capacity: 2\n" + pod(`initContainers: [{name: a, image: i, resources: {limits: {"{{PLACEHOLDER}}": "2"}}}], containers: [{name: b, image: i, `+device+"}]")},
		"sidecars run beside": {spec: "capacity: 2\n" + pod(`initContainers: [{name: a, image: i, restartPolicy: Always, resources: {limits: {"{{PLACEHOLDER}}": "2"}}}], containers: [{name: b, image: i, `+device+"}]"),
			errors: []string{"spec.brokerSpec.brokerPodSpec: Invalid value: the broker requests 3 slots"}},
		"half a slot":       {spec: pod(`containers: [{name: b, image: i, resources: {limits: {"{{PLACEHOLDER}}": 500m}}}]`), errors: []string{`spec.brokerSpec.brokerPodSpec.containers[0].resources.limits[{{PLACEHOLDER}}]: Invalid value: "500m": want a whole number`}},
		"less than no slot": {spec: pod(`containers: [{name: b, image: i, resources: {limits: {"{{PLACEHOLDER}}": "-1"}}}]`), errors: []string{`spec.brokerSpec.brokerPodSpec.containers[0].resources.limits[{{PLACEHOLDER}}]: Invalid value: "-1": want a whole number`}},
		"slots without end": {spec: pod(`containers: [{name: b, image: i, resources: {limits: {"{{PLACEHOLDER}}": "9e18"}}}, {name: c, image: i, resources: {limits: {"{{PLACEHOLDER}}": "9e18"}}}]`), errors: []string{"spec.brokerSpec.brokerPodSpec: Invalid value: the broker requests 8589934592 slots"}},
		"requests differ":   {spec: pod(`containers: [{name: b, image: i, resources: {limits: {"{{PLACEHOLDER}}": "1"}, requests: {"{{PLACEHOLDER}}": "0"}}}]`), errors: []string{`spec.brokerSpec.brokerPodSpec.containers[0].resources.requests[{{PLACEHOLDER}}]: Invalid value: "0": must be equal to the limit, 1`}},
		"blanks in it":      {spec: pod(`containers: [{name: b, image: i, resources: {limits: {"{{ PLACEHOLDER }}": "1"}}}]`), errors: []string{`spec.brokerSpec.brokerPodSpec.containers[0].resources.limits[{{ PLACEHOLDER }}]: Invalid value: not the name of a resource; did you mean "{{PLACEHOLDER}}"?`}, warnings: []string{noDevice}},
		"misspelt":          {spec: pod(`containers: [{name: b, image: i, resources: {limits: {"{{PLACEHOLDR}}": "1"}}}]`), errors: []string{`spec.brokerSpec.brokerPodSpec.containers[0].resources.limits[{{PLACEHOLDR}}]: Invalid value: not the name of a resource; did you mean "{{PLACEHOLDER}}"?`}, warnings: []string{noDevice}},
		"another template":  {spec: pod(`containers: [{name: b, image: i, resources: {limits: {"{{INSTANCE}}": "1"}}}]`), errors: []string{`spec.brokerSpec.brokerPodSpec.containers[0].resources.limits[{{INSTANCE}}]: Invalid value: not the name of a resource: the only template here is "{{PLACEHOLDER}}"`}, warnings: []string{noDevice}},
		"misspelt templates": {spec: one(`, args: ["{{INSTANC}}", "{{NODES}}"]`), errors: []string{
			`spec.brokerSpec.brokerPodSpec.containers[0].args[0]: Invalid value: "{{INSTANC}}": unknown template {{INSTANC}}; there are {{INSTANCE}}, {{NODE}}, {{SLOT_COUNT}} and {{property:NAME}}; did you mean {{INSTANCE}}?`, `spec.brokerSpec.brokerPodSpec.containers[0].args[1]: Invalid value: "{{NODES}}": unknown template {{NODES}}; there are {{INSTANCE}}, {{NODE}}, {{SLOT_COUNT}} and {{property:NAME}}; did you mean {{NODE}}?`}},
		"no resource's name": {spec: pod(`containers: [{name: b, image: i, resources: {limits: {"a b": "1", "{{PLACEHOLDER}}": "1"}}}]`), errors: []string{`spec.brokerSpec.brokerPodSpec.containers[0].resources.limits[a b]: Invalid value: not the name of a resource: `}},

		"a variable nobody replaces": {spec: job(`metadata: {annotations: {a: "$({{property:A}})"}}, spec: {restartPolicy: Never, containers: [{name: b, image: i, ` + device + `}]}`)},
		"a Job":                      {spec: job(`metadata: {annotations: {a: "{{INSTANCE}}"}}, spec: {restartPolicy: Never, containers: [{name: b, image: i, ` + device + `}]}`)},
		"a Job's templates": {spec: job(`metadata: {labels: {a: "{{NODE}}"}}, spec: {restartPolicy: OnFailure, containers: [{name: b, image: i, args: ["{{NODE}}"], ` + device + `}]}`), errors: []string{
			`spec.brokerSpec.brokerJobSpec.template.metadata.labels[a]: Invalid value: "{{NODE}}": {{NODE}} is not known in a Job`, `spec.brokerSpec.brokerJobSpec.template.spec.containers[0].args[0]: `}},
		"a Job that restarts": {spec: job(`spec: {containers: [{name: b, image: i, ` + device + `}]}`), errors: []string{`spec.brokerSpec.brokerJobSpec.template.spec.restartPolicy: Unsupported value: "": supported values: "OnFailure", "Never"`}},
		"a Job's field":       {spec: handler + "brokerSpec: {brokerJobSpec: {paralelism: 1}}", errors: []string{`spec.brokerSpec.brokerJobSpec.paralelism: Forbidden: unknown field; did you mean "parallelism"?`}},

		"a Service":            {spec: service("{ports: [{port: 80, targetPort: http}]}")},
		"headless":             {spec: service("{clusterIP: None}")},
		"a Service's field":    {spec: service("{port: [{port: 80}]}"), errors: []string{`spec.instanceServiceSpec.port: Forbidden: unknown field; did you mean "ports"?`}},
		"a Service's type":     {spec: service("{type: Cluster, ports: [{port: 80}]}"), errors: []string{`spec.instanceServiceSpec.type: Unsupported value: "Cluster"`}},
		"no ports":             {spec: service("{}"), errors: []string{"spec.instanceServiceSpec.ports: Required value"}},
		"a bad port":           {spec: service("{ports: [{port: 70000}]}"), errors: []string{"spec.instanceServiceSpec.ports[0].port: Invalid value: 70000"}},
		"ports without a name": {spec: service("{ports: [{port: 1, name: a}, {port: 2}, {port: 3, name: a}]}"), errors: []string{"spec.instanceServiceSpec.ports[1].name: Required value", `spec.instanceServiceSpec.ports[2].name: Duplicate value: "a"`}},
		"a bad selector":       {spec: service("{selector: {a: b c}, ports: [{port: 1}]}"), errors: []string{`spec.instanceServiceSpec.selector: Invalid value: "b c"`}},
		"a Service of nothing": {spec: handler + "configurationServiceSpec: {ports: [{port: 80}]}", warnings: []string{"spec.configurationServiceSpec: there is no Service without a broker"}},

		"brokerProperties of Akri's brokers": {spec: handler + `brokerProperties: {FRAMES_PER_SECOND: "10", FORMAT: JPEG}`},
		"brokerProperties of one's own": {spec: handler + `brokerProperties: {SITE: yard, "with-dash.and.dots": ""}`, warnings: []string{
			"spec.brokerProperties[SITE]: no container gets a variable of that name, since spec.propertyPrefixes does not let it: containers get it as SITE_<HASH> and in AKRI_DEVICES",
			"spec.brokerProperties[with-dash.and.dots]: no container gets",
			"spec.propertyPrefixes: to have all containers get these brokerProperties by their names, set [AKRI_, DEBUG_ECHO_, MDNS_, ONVIF_, OPCUA_, PCI_RESOURCE_, TEMPLATE_, UDEV_, USB_, " +
				"CREDENTIAL_, FORMAT, FRAMES_PER_SECOND, IDENTIFIER, NAMESPACE_INDEX, RESOLUTION_, SITE, with-dash.and.dots]; a list replaces the defaults"}},
		"brokerProperties of one's own, beside what a known handler reports": {
			spec: `discoveryHandler: {name: debugEcho, discoveryDetails: "descriptions: [a]"}` + "\nbrokerProperties: {SONAR_RANGE: far, FORMAT: JPEG, LD_PRELOAD: x.so}", warnings: []string{
				"spec.brokerProperties[LD_PRELOAD]: no container gets", "spec.brokerProperties[SONAR_RANGE]: no container gets",
				"spec.propertyPrefixes: to have all containers get these brokerProperties by their names, set [DEBUG_ECHO_, FORMAT, SONAR_RANGE]; " +
					"a list replaces the defaults, so it names those that are used here, too"}},
		"more of one's own than are proposed": {
			spec: `discoveryHandler: {name: debugEcho, discoveryDetails: "descriptions: [a]"}` + "\nbrokerProperties: {S" + strings.Repeat("O", 64) + ": far}", warnings: []string{
				"spec.brokerProperties[SO", "spec.propertyPrefixes: to have all containers get these brokerProperties by their names, set how their names begin, and those of the devices' properties; a list replaces the defaults"}},
		"more of one's own than are added": {spec: handler + "propertyPrefixes: [A_]\nbrokerProperties: {S" + strings.Repeat("O", 64) + ": far}", warnings: []string{
			"spec.brokerProperties[SO", "spec.propertyPrefixes: to have all containers get these brokerProperties by their names, add how their names begin"}},
		"brokerProperties of one's own, for brokers": {spec: pod(`containers: [{name: b, image: i, `+device+`}]`) + "\nbrokerProperties: {SITE: yard}", warnings: []string{
			"spec.brokerProperties[SITE]: brokers alone get a variable of that name, since spec.propertyPrefixes does not let it: other containers get it as SITE_<HASH> and in AKRI_DEVICES",
			"spec.propertyPrefixes: to have all containers get"}},
		"a mount at the container's root": {spec: `discoveryHandler: {name: debugEcho, discoveryDetails: "{descriptions: [a], mounts: [{containerPath: /, hostPath: /dev, readOnly: true}]}"}`,
			errors: []string{`spec.discoveryHandler.discoveryDetails: Invalid value: mounts[0]: containerPath "/": is the container's root`}},
		"what says what code a process runs": {spec: pod(`containers: [{name: b, image: i, `+device+`}]`) + "\npropertyPrefixes: [LD_, FORMAT]\nbrokerProperties: {LD_PRELOAD: x.so, FORMAT: JPEG}",
			warnings: []string{"spec.brokerProperties[LD_PRELOAD]: no container gets a variable of that name"}},
		"what prefixes leave out": {spec: handler + "propertyPrefixes: [A_]\nbrokerProperties: {A_B: x, C: y}",
			warnings: []string{"spec.brokerProperties[C]: no container gets", "spec.propertyPrefixes: to have all containers get these brokerProperties by their names, add C"}},
		"no variable's name": {spec: handler + `brokerProperties: {"A=B": x, "": y}`, errors: []string{"spec.brokerProperties[]: Invalid value: not the name of an environment variable", "spec.brokerProperties[A=B]: Invalid value"}},
		"a value with NUL":   {spec: handler + `brokerProperties: {FORMAT: "\0"}`, errors: []string{"spec.brokerProperties[FORMAT]: Invalid value: the value has a NUL"}},
		"some namespaces":    {spec: handler + `allowedNamespaces: {names: [a, team-b], selector: {matchLabels: {team: a}, matchExpressions: [{key: x, operator: Exists}]}}`},
		"an operator of no selector": {spec: handler + `allowedNamespaces: {selector: {matchExpressions: [{key: x, operator: Like}]}}`,
			errors: []string{`spec.allowedNamespaces.selector.matchExpressions[0].operator: Invalid value: "Like"`}},
		"no namespace's name":    {spec: handler + `allowedNamespaces: {names: [a, B_]}`, errors: []string{`spec.allowedNamespaces.names[1]: Invalid value: "B_": not the name of a namespace: `}},
		"a selector of no label": {spec: handler + `discovery: {nodeSelector: {"a b": c}}`, errors: []string{`spec.discovery.nodeSelector: Invalid value: "a b"`}},
	} {
		t.Run(name, func(t *testing.T) {
			found := checker(t).Check(configuration(t, tc.spec))
			expect(t, "errors", errorsOf(found.Errors), tc.errors)
			expect(t, "warnings", found.Warnings, tc.warnings)
		})
	}
}

func expect(t *testing.T, what string, got, want []string) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s %q, want %q", what, got, want)
	}
	for i := range got {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("%s: got %q, want %q", what, got[i], want[i])
		}
	}
}

func TestNewCheckerRefusesUnknownHandlers(t *testing.T) {
	if _, err := NewChecker([]string{"sonar"}); err == nil || !strings.Contains(err.Error(), `no discovery handler "sonar"`) {
		t.Errorf("error %v", err)
	}
}

// However much is wrong, the answer is short.
func TestManyErrors(t *testing.T) {
	c := configuration(t, "discoveryHandler: {name: sonar}")
	c.Spec.BrokerProperties = map[string]string{}
	for i := range 10_000 {
		c.Spec.BrokerProperties[fmt.Sprint(i, "=")] = ""
	}
	if found := checker(t).Check(c).Bounded(); len(found.Errors) != maxFindings || len(found.Message()) > 4000 {
		t.Errorf("%d errors, a message of %d bytes", len(found.Errors), len(found.Message()))
	}
}

// What was wrong before is told, and refuses nothing.
func TestWithout(t *testing.T) {
	bad := func(more string) *akriv0.Configuration {
		return configuration(t, `{discoveryHandler: {name: sonar}, brokerSpec: {brokerPodSpec: {containers: [{name: b, imagee: i}]`+more+`}}}`)
	}
	c := checker(t)
	same := c.Check(bad("")).Without(c.Check(bad("")))
	if len(same.Errors) != 0 || len(same.Warnings) != 1 || !strings.Contains(same.Warnings[0], "imagee") || same.Message() != "" {
		t.Errorf("the same error: %+v", same)
	}
	worse := c.Check(bad(", nodName: x")).Without(c.Check(bad("")))
	if len(worse.Errors) != 1 || worse.Errors[0].Field != "spec.brokerSpec.brokerPodSpec.nodName" || len(worse.Warnings) != 1 {
		t.Errorf("another error: %+v", worse)
	}
	many := func(n int, more string) Findings {
		found := configuration(t, `{discoveryHandler: {name: sonar}, brokerProperties: {aaa: ""}}`)
		for i := range n {
			found.Spec.BrokerProperties[fmt.Sprintf("b%03d=", i)] = ""
		}
		found.Spec.BrokerProperties[more] = ""
		return c.Check(found)
	}
	if beyond := many(60, "z=").Without(many(60, "ok")); len(beyond.Errors) != 1 ||
		!strings.Contains(beyond.Message(), "z=") {
		t.Errorf("a new error, after more than are shown: %+v", beyond.Errors)
	}
	if fewer := many(55, "ok").Without(many(60, "ok")); len(fewer.Errors) > 0 {
		t.Errorf("one of more errors than are shown is mended: %+v", fewer.Errors)
	}
	foreign := func(first, n int, more string) Findings {
		for i := range n {
			more += fmt.Sprintf(", x%02d: 1", first+i)
		}
		return c.Check(bad(more))
	}
	if mended := foreign(1, 29, "").Without(foreign(0, 30, "")); len(mended.Errors) > 0 || len(mended.Warnings) == 0 {
		t.Errorf("one field of a spec of too many wrong ones is mended: %+v", mended)
	}
	if worse := foreign(0, 30, "").Without(foreign(0, 2, "")); len(worse.Errors) == 0 {
		t.Error("too many wrong fields are added")
	}
}

func TestMessageIsShort(t *testing.T) {
	var f Findings
	for range 15 {
		f.Errors = append(f.Errors, decode(nil, []byte(`[]`), &akriv0.Instance{})...)
	}
	if m := f.Message(); !strings.HasSuffix(m, "; and 5 more") || strings.Count(m, ";") != maxMessageErrors {
		t.Errorf("message %q", m)
	}
}

// Akri's sample Configurations are taken as they are.
func TestAkrisSamples(t *testing.T) {
	for _, spec := range samples(t) {
		if found := checker(t).Check(spec); len(found.Errors)+len(found.Warnings) > 0 {
			t.Errorf("%s: %v, %q", spec.Name, found.Errors, found.Warnings)
		}
	}
}

// The Configurations of docs/brokers.md are taken as they are, and one has a Job.
func TestConfigurationsOfThePageOfBrokers(t *testing.T) {
	objects, err := docs.Objects("../..", "docs/brokers.md")
	if err != nil {
		t.Fatal(err)
	}
	pods, jobs := 0, 0
	for _, object := range objects {
		if !strings.HasPrefix(object, "apiVersion: ") {
			continue // a part of one
		}
		c := &akriv0.Configuration{}
		if err := yaml.UnmarshalStrict([]byte(object), c); err != nil {
			t.Fatalf("%v:\n%s", err, object)
		}
		if found := checker(t).Check(c); len(found.Errors)+len(found.Warnings) > 0 {
			t.Errorf("%s: %v, %q", c.Name, found.Errors, found.Warnings)
		}
		if akriv0.IsSet(c.Spec.BrokerSpec.BrokerJobSpec) {
			jobs++
		} else {
			pods++
		}
	}
	if pods != 1 || jobs != 1 {
		t.Errorf("the page has %d Configurations with a pod, %d with a Job, want one of each", pods, jobs)
	}
}

// A handler's parser gets what is written in the Configuration, and no Secret.
func TestWhatHandlersAreAsked(t *testing.T) {
	var asked discovery.Request
	c := &Checker{handlers: map[string]func(discovery.Request) error{"sonar": func(r discovery.Request) error {
		asked = r
		r.Warnf("discoveryDetails of sonar: odd:\n  very")
		return discovery.Invalidf("discoveryDetails of sonar: bad:\n  very")
	}}}
	found := c.Check(configuration(t, `discoveryHandler: {name: sonar, discoveryDetails: text, discoveryProperties: [{name: a, value: b}, {name: c, valueFrom: {secretKeyRef: {name: s, key: k}}}]}`))
	if asked.Details != "text" || len(asked.Properties) != 1 || string(asked.Properties["a"]) != "b" {
		t.Errorf("asked %+v", asked)
	}
	expect(t, "errors", errorsOf(found.Errors), []string{"spec.discoveryHandler.discoveryDetails: Invalid value: bad: very"})
	expect(t, "warnings", found.Warnings, []string{"spec.discoveryHandler.discoveryDetails: odd: very"})
}
