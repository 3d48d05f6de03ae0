package v0

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// testdata has the fields, nesting and value kinds of the Configurations that
// Akri publishes.
func TestAkrisConfigurationsAreReadWithoutLoss(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no testdata: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var c Configuration
			if err := yaml.UnmarshalStrict(text, &c); err != nil {
				t.Fatalf("strict decoding: %v", err)
			}
			if c.Name == "" || c.Spec.DiscoveryHandler.Name == "" || c.Spec.DiscoveryHandler.DiscoveryDetails == "" || c.Spec.Capacity == 0 {
				t.Errorf("decoded to %+v", c)
			}
			back, err := yaml.Marshal(c)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(generic(t, text), generic(t, back)); diff != "" {
				t.Errorf("written again (-published +ours):\n%s", diff)
			}
			if diff := cmp.Diff(c, *c.DeepCopy()); diff != "" {
				t.Errorf("DeepCopy() (-original +copy):\n%s", diff)
			}
		})
	}
}

// generic decodes YAML as a reader without our types would. An empty
// brokerProperties says no more than none.
func generic(t *testing.T, text []byte) map[string]any {
	t.Helper()
	var m map[string]any
	if err := yaml.Unmarshal(text, &m); err != nil {
		t.Fatal(err)
	}
	if spec, ok := m["spec"].(map[string]any); ok {
		if p, ok := spec["brokerProperties"].(map[string]any); ok && len(p) == 0 {
			delete(spec, "brokerProperties")
		}
	}
	return m
}

func TestUnique(t *testing.T) {
	yes, no := true, false
	for name, tc := range map[string]struct {
		spec ConfigurationSpec
		want UniqueScope
	}{
		"unless said otherwise":        {ConfigurationSpec{}, UniquePerContainer},
		"said":                         {ConfigurationSpec{UniqueDevices: &yes}, UniquePerContainer},
		"off":                          {ConfigurationSpec{UniqueDevices: &no}, ""},
		"off, whatever the scope":      {ConfigurationSpec{UniqueDevices: &no, UniqueScope: UniquePerPod}, ""},
		"in a pod":                     {ConfigurationSpec{UniqueScope: UniquePerPod}, UniquePerPod},
		"on a node":                    {ConfigurationSpec{UniqueDevices: &yes, UniqueScope: UniquePerNode}, UniquePerNode},
		"in a container, as by itself": {ConfigurationSpec{UniqueScope: UniquePerContainer}, UniquePerContainer},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.spec.Unique(); got != tc.want {
				t.Errorf("Unique() = %q, want %q", got, tc.want)
			}
		})
	}
}

func TestInstanceIsAkris(t *testing.T) {
	const text = `
apiVersion: akri.sh/v0
kind: Instance
metadata:
  name: akri-onvif-8120fe
spec:
  configurationName: akri-onvif
  cdiName: akri.sh/akri-onvif=8120fe
  capacity: 2
  brokerProperties:
    ONVIF_DEVICE_IP: 10.0.0.1
  shared: true
  nodes: [node-a, node-b]
  deviceUsage:
    akri-onvif-8120fe-0: node-a
    akri-onvif-8120fe-1: ""
`
	var i Instance
	if err := yaml.UnmarshalStrict([]byte(text), &i); err != nil {
		t.Fatal(err)
	}
	back, err := yaml.Marshal(i)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(generic(t, []byte(text)), generic(t, back)); diff != "" {
		t.Errorf("written again (-Akri's +ours):\n%s", diff)
	}
}
