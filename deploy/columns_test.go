package deploy

import (
	"os"
	"path/filepath"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// kubectl get -o wide says last what is wrong: the text is long, and would push the columns
// behind it off the screen.
func TestMessagesAreTheLastColumn(t *testing.T) {
	files, err := filepath.Glob("crds/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.Unmarshal(data, &crd); err != nil {
			t.Fatal(err)
		}
		columns := crd.Spec.Versions[0].AdditionalPrinterColumns
		for i, column := range columns {
			switch column.JSONPath {
			case ".status.problems[0].message", ".status.problems[0]", ".spec.problems[0].message":
				found++
				if i < len(columns)-1 {
					t.Errorf("%s: column %s stands before %s, want it last", crd.Name, column.Name, columns[i+1].Name)
				}
			}
		}
	}
	if found != 3 {
		t.Errorf("found %d columns of messages, want those of Configurations, Instances and DeviceSlices", found)
	}
}
