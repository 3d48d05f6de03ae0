package deploy

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
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

// maxUnavailable is a number of nodes or a per cent of them; another value is refused with what to write.
func TestMaxUnavailableOfBrokers(t *testing.T) {
	of := configurationSpec(t).Properties["brokerUpdate"]
	var internal apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(&of, &internal,
		nil); err != nil {
		t.Fatal(err)
	}
	schema, err := structuralschema.NewStructural(&internal)
	if err != nil {
		t.Fatal(err)
	}
	validator := cel.NewValidator(schema, false, celconfig.PerCallLimit)
	for value, valid := range map[any]bool{
		int64(1): true, int64(100000): true, "1%": true, "10%": true, "100%": true,
		int64(0): false, int64(-1): false, int64(1 << 40): false,
		"0": false, "5": false, "0%": false, "05%": false, "101%": false, "-1%": false, "abc": false, "": false,
	} {
		object := map[string]any{"maxUnavailable": value}
		errs, _ := validator.Validate(t.Context(), field.NewPath("spec", "brokerUpdate"), schema, object, nil,
			celconfig.RuntimeCELCostBudget)
		if (len(errs) == 0) != valid {
			t.Errorf("%v: %v", value, errs)
		}
		for _, err := range errs {
			if text := err.Error(); !strings.Contains(text, "spec.brokerUpdate.maxUnavailable") ||
				!strings.Contains(text, "such as 10%; to replace no broker set paused: true") {
				t.Errorf("%v: %v", value, err)
			}
		}
	}
}
