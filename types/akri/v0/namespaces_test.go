package v0

import (
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestNamespacesThatMayUseAConfiguration(t *testing.T) {
	teamA := &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}
	for _, test := range []struct {
		name      string
		allowed   *AllowedNamespaces
		namespace string
		want      bool
	}{
		{"all, as without the field in Akri", nil, "any", true},
		{"its own always", &AllowedNamespaces{}, "devices", true},
		{"nothing is said of others", &AllowedNamespaces{}, "any", false},
		{"by name", &AllowedNamespaces{Names: []string{"x", "any"}}, "any", true},
		{"not by name", &AllowedNamespaces{Names: []string{"x"}}, "any", false},
		{"by label", &AllowedNamespaces{Selector: teamA}, "of-a", true},
		{"not by label", &AllowedNamespaces{Selector: teamA}, "any", false},
		{"by name, not by label", &AllowedNamespaces{Names: []string{"any"}, Selector: teamA}, "any", true},
		{"an empty selector is all", &AllowedNamespaces{Selector: &metav1.LabelSelector{}}, "unread", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := &Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: "devices", Name: "cameras"}, Spec: ConfigurationSpec{AllowedNamespaces: test.allowed}}
			got, err := c.MayBeUsedFrom(test.namespace, func() (map[string]string, error) {
				switch test.namespace {
				case "of-a":
					return map[string]string{"team": "a"}, nil
				case "any":
					return nil, nil
				}
				t.Error("read the labels where they decide nothing")
				return nil, nil
			})
			if err != nil || got != test.want {
				t.Errorf("MayBeUsedFrom(%q) = %v, %v; want %v", test.namespace, got, err, test.want)
			}
		})
	}
}

func TestNamespacesThatCannotBeTold(t *testing.T) {
	c := &Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: "devices", Name: "cameras"}}
	c.Spec.AllowedNamespaces = &AllowedNamespaces{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}}
	if ok, err := c.MayBeUsedFrom("any", func() (map[string]string, error) { return nil, errors.New("api away") }); ok || err == nil {
		t.Errorf("unread labels: %v, %v; want no and an error", ok, err)
	}
	c.Spec.AllowedNamespaces.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "x", Operator: "Like"}}
	if ok, err := c.MayBeUsedFrom("any", nil); ok || err == nil || !strings.Contains(err.Error(), "devices/cameras") {
		t.Errorf("a selector that is not valid: %v, %v; want no and an error that names the Configuration", ok, err)
	}
}
