package deploy

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
)

// The policy for namespaces with quotas refuses pods that request one Instance, in any
// container, and no others.
func TestInstanceRequests(t *testing.T) {
	p := policies(t, "quota/instance-requests.yaml")["kubeslot-instance-requests"]
	container := func(list, name string) string {
		return fmt.Sprintf("{name: c, resources: {%s: {cpu: '1', %s: '1'}}}", list, name)
	}
	for spec, refused := range map[string]string{
		"containers: [" + container("limits", "akri.sh/cameras") + "]":                                                                "",
		"containers: [{name: c}]":                                                                                                     "",
		"containers: [" + container("limits", "akri.sh/cameras-f30c78") + "]":                                                         "akri.sh/cameras-f30c78",
		"containers: [" + container("requests", "akri.sh/cameras-f30c78e4a1b2") + "]":                                                 "akri.sh/cameras-f30c78e4a1b2",
		"containers: [{name: a}], initContainers: [" + container("limits", "akri.sh/cameras-f30c78") + "]":                            "akri.sh/cameras-f30c78",
		"containers: [" + container("limits", "akri.sh/cameras-front") + ", " + container("limits", "akri.sh/cameras-f30c7") + "]":    "",
		"containers: [" + container("limits", "example.com/cameras-f30c78") + "]":                                                     "",
		"containers: [" + container("limits", "akri.sh/cameras") + ", " + container("limits", "akri.sh/front-yard-cams-000001") + "]": "akri.sh/front-yard-cams-000001",
	} {
		got := p.refusal(t, request{by: &user.DefaultInfo{Name: "dev"}, resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, kind: "Pod",
			object: "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: team-a}\nspec: {" + spec + "}"})
		if refused == "" && got != "" || !strings.Contains(got, refused) || refused != "" && !strings.Contains(got, "request akri.sh/<configuration>") {
			t.Errorf("%s: %q, want a refusal with %q", spec, got, refused)
		}
	}
}
