package remote

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// What --plugin-policy may say of which names.
func TestPolicies(t *testing.T) {
	for text, want := range map[string]string{
		"gpu=ignore":                           "gpu ignored",
		"b=required,a.b-c=ignore":              "a.b-c ignored, b required",
		"a=required,a=ignore":                  "a ignored",
		"gpu=":                                 `the policy ""`,
		"gpu=Ignore":                           `neither "required" nor "ignore"`,
		"-gpu=ignore":                          `"-gpu" is not a plugin's name`,
		"GPU=ignore":                           `"GPU" is not a plugin's name`,
		"../gpu=ignore":                        "is not a plugin's name",
		strings.Repeat("a", 64) + "=ignore":    "is not a plugin's name",
		strings.Repeat("a", 63) + "=ignore":    strings.Repeat("a", 63) + " ignored",
		strings.Repeat("A", 1<<20) + "=ignore": "A\" is not a plugin's name",
		"a=ignore,b":                           `plugin "a" has the policy "ignore,b"`,
	} {
		flags, with := pflag.NewFlagSet("", pflag.ContinueOnError), setup{}
		var o Options
		o.AddFlags(flags)
		err := flags.Set("plugin-policy", text)
		var got string
		if with.policies = o.Policies; err == nil {
			got, err = plugins(with.config(t))
		}
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) || err != nil && len(got) > 300 {
			t.Errorf("%.80q: %.300q, want %q", text, got, want)
		}
	}
}

// plugins are those that are known from the start.
func plugins(config Config) (string, error) {
	s, err := New(config)
	if err != nil {
		return "", err
	}
	var all []string
	for _, p := range s.Plugins() {
		if p.Required() {
			all = append(all, p.GetName()+" required")
		} else {
			all = append(all, p.GetName()+" ignored")
		}
	}
	return strings.Join(all, ", "), nil
}
