package deploy

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Whoever has the controller make something for him must be allowed to make it himself.
func TestWhoMayWriteBrokers(t *testing.T) {
	p := policies(t, "policies/brokers.yaml")["kubeslot-brokers"]
	configuration := func(spec string) string {
		return "metadata: {namespace: yard, name: cam}\nspec: {discoveryHandler: {name: onvif}" + spec + "}"
	}
	const (
		pod     = ", brokerSpec: {brokerPodSpec: {containers: []}}"
		job     = ", brokerSpec: {brokerJobSpec: {template: {}}}"
		service = ", instanceServiceSpec: {ports: []}"
		noPods  = "has the controller create pods, which eve may not do in namespace yard"
	)
	for name, tc := range map[string]struct {
		object, old string
		may         rights
		want        string
	}{
		"no broker":                  {object: configuration("")},
		"nulls":                      {object: configuration(", brokerSpec: {brokerPodSpec: null}, instanceServiceSpec: null")},
		"pods":                       {object: configuration(pod), want: noPods},
		"pods, with the right":       {object: configuration(pod), may: rights{"create pods yard"}},
		"the right elsewhere":        {object: configuration(pod), may: rights{"create pods default"}, want: noPods},
		"another right":              {object: configuration(pod), may: rights{"list pods yard", "create jobs.batch yard"}, want: noPods},
		"Jobs":                       {object: configuration(job), may: rights{"create pods yard"}, want: "has the controller create Jobs"},
		"Jobs, with the right":       {object: configuration(job), may: rights{"create jobs.batch yard"}},
		"a Service":                  {object: configuration(service), may: rights{"create pods yard"}, want: "have the controller create Services"},
		"a Service, with the right":  {object: configuration(service), may: rights{"create services yard"}},
		"a Service of all":           {object: configuration(", configurationServiceSpec: {ports: []}"), want: "have the controller create Services"},
		"pods come":                  {old: configuration(""), object: configuration(pod), want: noPods},
		"others' pods, other change": {old: configuration(pod), object: configuration(pod + ", capacity: 3"), want: noPods},
		"no change of the spec":      {old: configuration(pod), object: "metadata: {namespace: yard, name: cam, labels: {a: b}}\nspec: {discoveryHandler: {name: onvif}" + pod + "}"},
	} {
		t.Run(name, func(t *testing.T) {
			expect(t, p, request{by: &user.DefaultInfo{Name: "eve"}, may: tc.may, kind: "Configuration",
				resource: schema.GroupVersionResource{Group: "akri.sh", Version: "v0", Resource: "configurations"}, object: tc.object, old: tc.old}, tc.want)
		})
	}
}
