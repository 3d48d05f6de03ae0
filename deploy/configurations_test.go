package deploy

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// configurationSpec is the schema of a Configuration's spec.
func configurationSpec(t *testing.T) apiextensionsv1.JSONSchemaProps {
	t.Helper()
	data, err := os.ReadFile("crds/akri.sh_configurations.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(data, &crd); err != nil {
		t.Fatal(err)
	}
	return crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
}

// Limits that are set are at least 1 and have an end, and kubectl explain has the defaults.
func TestLimitsOfConfigurations(t *testing.T) {
	spec := configurationSpec(t)
	brokers := spec.Properties["brokerLimits"].Properties
	for name, tc := range map[string]struct {
		field        apiextensionsv1.JSONSchemaProps
		usual, limit int
	}{
		"maxInstances":         {spec.Properties["maxInstances"], akriv0.DefaultMaxInstances, 100000},
		"brokerLimits.perNode": {brokers["perNode"], akriv0.DefaultBrokersPerNode, 10000},
		"brokerLimits.total":   {brokers["total"], akriv0.DefaultBrokersTotal, 100000},
	} {
		f := tc.field
		if f.Minimum == nil || *f.Minimum != 1 || f.Maximum == nil || *f.Maximum != float64(tc.limit) || f.Default != nil {
			t.Errorf("%s is %+v", name, f)
		}
		if !strings.Contains(strings.Join(strings.Fields(f.Description), " "), fmt.Sprintf("%d without it", tc.usual)) {
			t.Errorf("%s: %q does not say that it is %d by default", name, f.Description, tc.usual)
		}
	}
}

// Who may not change a Configuration's handler is told what to do instead.
func TestWhoChangesAHandlerIsToldWhatToDo(t *testing.T) {
	spec := configurationSpec(t)
	want := apiextensionsv1.ValidationRule{Rule: "self == oldSelf", Message: "discoveryHandler cannot be changed: delete the Configuration and apply it again " +
		"under the same name; pods that run keep their slots, and its own brokers start again"}
	if rules := spec.Properties["discoveryHandler"].XValidations; !slices.Contains(rules, want) {
		t.Errorf("the rules are %+v, want %+v", rules, want)
	}
}
