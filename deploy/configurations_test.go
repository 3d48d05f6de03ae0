package deploy

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"

	akriv0 "github.com/kubeslot/kubeslot/types/akri/v0"
)

// specOf is the schema of the spec of a kind, such as akri.sh_configurations.
func specOf(t *testing.T, kind string) apiextensionsv1.JSONSchemaProps {
	t.Helper()
	data, err := os.ReadFile("crds/" + kind + ".yaml")
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
	spec := specOf(t, "akri.sh_configurations")
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
	spec := specOf(t, "akri.sh_configurations")
	want := apiextensionsv1.ValidationRule{Rule: "self == oldSelf", Message: "discoveryHandler cannot be changed: delete the Configuration and apply it again " +
		"under the same name; pods that run keep their slots, and its own brokers start again"}
	if rules := spec.Properties["discoveryHandler"].XValidations; !slices.Contains(rules, want) {
		t.Errorf("the rules are %+v, want %+v", rules, want)
	}
}

// rulesOf evaluates the rules of a schema on a value.
func rulesOf(t *testing.T, of apiextensionsv1.JSONSchemaProps) func(*field.Path, any) field.ErrorList {
	t.Helper()
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
	return func(path *field.Path, value any) field.ErrorList {
		errs, _ := validator.Validate(t.Context(), path, schema, value, nil, celconfig.RuntimeCELCostBudget)
		return errs
	}
}

// Each duration that the API server takes is one that our programs can read: of one that they cannot,
// none could read any Configuration, or any SlotClaim, of the cluster.
func TestDurationsCanBeRead(t *testing.T) {
	for _, kind := range []string{"akri.sh_configurations", "kubeslot.io_slotclaims"} {
		of := specOf(t, kind).Properties["releaseUnreachableAfter"]
		validate := rulesOf(t, of)
		for value, valid := range map[string]bool{
			"1m": true, "90s": true, "1h30m": true, "1h0m0s": true, "1.5h": true, "24h": true, "1m0.5s": true,
			"1d": false, "1 day": false, "12 hours": false, "90 minutes": false, "1 h": false, "1w": false,
			"5": false, "": false, "59s": false, "-2m": false, "9999999999999h": false,
		} {
			if of.Format != "" {
				t.Errorf("%s: what the format %s allows is not what Go reads", kind, of.Format)
			}
			errs := validate(field.NewPath("spec"), value)
			if (len(errs) == 0) != valid {
				t.Errorf("%s: %q: %v", kind, value, errs)
			}
			var read metav1.Duration
			if err := json.Unmarshal([]byte(`"`+value+`"`), &read); err != nil && len(errs) == 0 {
				t.Errorf("%s: %q is taken, and nobody can read it: %v", kind, value, err)
			}
		}
	}
}

// maxUnavailable is a number of nodes or a per cent of them; another value is refused with what to write.
func TestMaxUnavailableOfBrokers(t *testing.T) {
	validate := rulesOf(t, specOf(t, "akri.sh_configurations").Properties["brokerUpdate"])
	for value, valid := range map[any]bool{
		int64(1): true, int64(100000): true, "1%": true, "10%": true, "100%": true,
		int64(0): false, int64(-1): false, int64(1 << 40): false,
		"0": false, "5": false, "0%": false, "05%": false, "101%": false, "-1%": false, "abc": false, "": false,
	} {
		errs := validate(field.NewPath("spec", "brokerUpdate"), map[string]any{"maxUnavailable": value})
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
