package deploy

import (
	"os"
	"slices"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// kubectl get deviceslices -o wide says of a problem which Configuration it is of.
func TestAProblemIsShownWithItsConfiguration(t *testing.T) {
	data, err := os.ReadFile("crds/kubeslot.io_deviceslices.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(data, &crd); err != nil {
		t.Fatal(err)
	}
	var shown []string
	for _, column := range crd.Spec.Versions[0].AdditionalPrinterColumns {
		shown = append(shown, column.JSONPath)
	}
	for _, want := range []string{".spec.problems[0].configuration.name", ".spec.problems[0].message"} {
		if !slices.Contains(shown, want) {
			t.Errorf("the columns are %q, without %s", shown, want)
		}
	}
}
