package remote

import (
	"strings"
	"testing"
)

func TestPolicies(t *testing.T) {
	for text, want := range map[string]string{
		"gpu=ignore":                           "gpu=ignore",
		"b=required, a.b-c=ignore":             "a.b-c=ignore,b=required",
		"a=required,a=ignore":                  "a=ignore",
		"":                                     `"" is not a plugin's name`,
		"gpu":                                  `the policy ""`,
		"gpu=Ignore":                           `neither "required" nor "ignore"`,
		"-gpu=ignore":                          `"-gpu" is not a plugin's name`,
		"GPU=ignore":                           `"GPU" is not a plugin's name`,
		"../gpu=ignore":                        "is not a plugin's name",
		strings.Repeat("a", 64) + "=ignore":    "is not a plugin's name",
		strings.Repeat("a", 63) + "=ignore":    strings.Repeat("a", 63) + "=ignore",
		strings.Repeat("A", 1<<20) + "=ignore": "A\" is not a plugin's name",
		"a=ignore,b":                           `plugin "b"`,
	} {
		var p Policies
		got := ""
		if err := p.Set(text); err != nil {
			got = err.Error()
		} else {
			got = p.String()
		}
		if !strings.Contains(got, want) || len(got) > 256 {
			t.Errorf("Set(%.80q) = %.300q, want %q", text, got, want)
		}
	}
	p := Policies{"a": Ignore}
	if err := p.Set("b=ignore"); err != nil || p.String() != "a=ignore,b=ignore" {
		t.Errorf("a second flag leaves %s, %v", p.String(), err)
	}
}
