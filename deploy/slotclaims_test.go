package deploy

import (
	"regexp"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// A node may make as many claims as the API server takes of it; each is small.
func TestTextsOfSlotClaimsAreBounded(t *testing.T) {
	texts := 0
	var check func(path string, p apiextensionsv1.JSONSchemaProps)
	check = func(path string, p apiextensionsv1.JSONSchemaProps) {
		if p.Type == "string" {
			texts++
			if len(p.Enum) == 0 && (p.MaxLength == nil || *p.MaxLength > 253) {
				t.Errorf("%s has no maxLength of 253 or less", path)
			}
		}
		for name, of := range p.Properties {
			check(path+"."+name, of)
		}
		if p.Items != nil || p.AdditionalProperties != nil {
			t.Errorf("%s is a list or a map: bound it, and teach this test about it", path)
		}
	}
	check("spec", specOf(t, "kubeslot.io_slotclaims"))
	if texts < 7 {
		t.Errorf("found %d texts", texts)
	}
}

// A node writes them, and people copy them into commands.
func TestNamesInSlotClaimsAreNames(t *testing.T) {
	spec := specOf(t, "kubeslot.io_slotclaims")
	for _, of := range []string{"pod", "resourceClaim"} {
		for _, field := range []string{"namespace", "name"} {
			pattern := spec.Properties[of].Properties[field].Pattern
			takes, err := regexp.Compile(pattern)
			if err != nil || pattern == "" {
				t.Errorf("%s.%s has the pattern %q: %v", of, field, pattern, err)
				continue
			}
			for text, want := range map[string]bool{"default": true, "a-1": true, "a.b": field == "name", "": false,
				"a; curl x | sh": false, "a\nb": false, "$(x)": false, "-n": false} {
				if takes.MatchString(text) != want {
					t.Errorf("%s.%s: %q matches: %t, want %t", of, field, text, !want, want)
				}
			}
		}
	}
}
