package udev

import (
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/discovery/sysfs/sysfstest"
)

// TestDocs tries the Configurations of the handler's page on the recorded machines.
func TestDocs(t *testing.T) {
	page, err := os.ReadFile("../../docs/discovery/udev.md")
	if err != nil {
		t.Fatal(err)
	}
	m := sysfstest.New(t, sysfstest.Recording(t, "serial"), sysfstest.Recording(t, "camera"), sysfstest.Recording(t, "pci"))
	found := map[string]int{}
	for _, block := range strings.Split(string(page), "```yaml\n")[1:] {
		text, _, _ := strings.Cut(block, "```")
		var configuration struct {
			Metadata struct{ Name string }
			Spec     struct {
				DiscoveryHandler struct {
					Name, DiscoveryDetails string
					DiscoveryProperties    []struct{ Name, Value string }
				}
			}
		}
		if err := yaml.Unmarshal([]byte(text), &configuration); err != nil {
			t.Fatalf("%v:\n%s", err, text)
		}
		handler := configuration.Spec.DiscoveryHandler
		if handler.Name != Name {
			t.Errorf("the handler is %q:\n%s", handler.Name, text)
		}
		request := discovery.Request{
			Details: handler.DiscoveryDetails, Properties: map[string][]byte{},
			Warn: func(w string) { t.Errorf("%s:\n%s", w, text) },
		}
		for _, p := range handler.DiscoveryProperties {
			request.Properties[p.Name] = []byte(p.Value)
		}
		s, err := parseRequest(request)
		if err != nil {
			t.Fatalf("%v:\n%s", err, text)
		}
		found[configuration.Metadata.Name] = len(find(t, newFinder(m.Tree, s, request.Warnf), m))
	}
	for name, want := range map[string]int{"webcam": 3, "whole-webcam": 3, "gpu": 1} {
		if found[name] != want {
			t.Errorf("%s finds %d devices on the recorded machines, want %d", name, found[name], want)
		}
	}
}
