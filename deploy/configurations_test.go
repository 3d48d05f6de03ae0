package deploy

import (
	"os"
	"slices"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// Who may not change a Configuration's handler is told what to do instead.
func TestWhoChangesAHandlerIsToldWhatToDo(t *testing.T) {
	data, err := os.ReadFile("crds/akri.sh_configurations.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(data, &crd); err != nil {
		t.Fatal(err)
	}
	spec := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	want := apiextensionsv1.ValidationRule{Rule: "self == oldSelf", Message: "discoveryHandler cannot be changed: delete the Configuration and apply it again " +
		"under the same name; pods that run keep their slots, and its own brokers start again"}
	if rules := spec.Properties["discoveryHandler"].XValidations; !slices.Contains(rules, want) {
		t.Errorf("the rules are %+v, want %+v", rules, want)
	}
}
