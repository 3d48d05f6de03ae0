package kubeletargs

import (
	"strings"
	"testing"
)

const at = "unix:///run/kubecri/kubecri.sock"

// Set and set back, the file is what it was.
func TestSetField(t *testing.T) {
	for name, test := range map[string]struct{ text, want, says string }{
		"plain":           {"a: 1\ncontainerRuntimeEndpoint: unix:///r\nb: 2\n", "a: 1\ncontainerRuntimeEndpoint: " + at + "\nb: 2\n", ""},
		"quoted, comment": {"containerRuntimeEndpoint: \"unix:///r\" # runtime\n", "containerRuntimeEndpoint: \"" + at + "\" # runtime\n", ""},
		"single quotes":   {"containerRuntimeEndpoint : 'unix:///r'\r\nb: 2\r\n", "containerRuntimeEndpoint : '" + at + "'\r\nb: 2\r\n", ""},
		"empty, quoted":   {"containerRuntimeEndpoint: \"\"\na: 1\n", "containerRuntimeEndpoint: \"" + at + "\"\na: 1\n", ""},
		"absent":          {"a: 1\n", "a: 1\ncontainerRuntimeEndpoint: " + at + "\n", ""},
		"no file yet":     {"", "containerRuntimeEndpoint: " + at + "\n", ""},
		"in a comment":    {"# containerRuntimeEndpoint: unix:///r\n", "# containerRuntimeEndpoint: unix:///r\ncontainerRuntimeEndpoint: " + at + "\n", ""},
		"of another":      {"x:\n  containerRuntimeEndpoint: unix:///r\n", "x:\n  containerRuntimeEndpoint: unix:///r\ncontainerRuntimeEndpoint: " + at + "\n", ""},
		"JSON":            {`{"a": 1, "containerRuntimeEndpoint":"unix:///r"}`, `{"a": 1, "containerRuntimeEndpoint":"` + at + `"}`, ""},
		"flow style":      {"{a: 1}\n", "", "by hand"},
		"a list":          {"- a\n", "", "no YAML"},
		"block style":     {"containerRuntimeEndpoint: >-\n  unix:///r\n", "", "by hand"},
	} {
		t.Run(name, func(t *testing.T) {
			before, _ := Field(test.text)
			got, err := SetField(test.text, at)
			if (err == nil) != (test.says == "") || err != nil && !strings.Contains(err.Error(), test.says) {
				t.Fatalf("error %v, want one that says %q", err, test.says)
			}
			if got != test.want {
				t.Fatalf("got %q, want %q", got, test.want)
			}
			if err != nil {
				return
			}
			if value, err := Field(got); value != at || err != nil {
				t.Errorf("it says %q, %v", value, err)
			}
			if back, err := SetField(got, before); back != test.text || err != nil {
				t.Errorf("set back: %q, %v", back, err)
			}
		})
	}
}

func TestSetFlag(t *testing.T) {
	const flag = "--container-runtime-endpoint"
	for name, test := range map[string]struct{ text, is, want string }{
		"kubeadm's":        {`A="` + flag + `=unix:///r --x=1"` + "\n", "unix:///r", `A="` + flag + `=` + at + ` --x=1"` + "\n"},
		"at the end":       {`A="--x ` + flag + ` unix:///r"`, "unix:///r", `A="--x ` + flag + ` ` + at + `"`},
		"underscores":      {"--container_runtime_endpoint=/r", "/r", "--container_runtime_endpoint=" + at},
		"quoted":           {flag + `='unix:///r' --x`, "unix:///r", flag + `='` + at + `' --x`},
		"twice":            {flag + "=/a\n" + flag + "=/b\n", "/b", flag + "=" + at + "\n" + flag + "=" + at + "\n"},
		"a comment":        {"# " + flag + "=/a\n ; " + flag + "=/b\n", "", "# " + flag + "=/a\n ; " + flag + "=/b\n"},
		"continued":        {flag + "=/a\\\n --x", "/a", flag + "=" + at + "\\\n --x"},
		"another's":        {flag + "s=/a --image-service-endpoint=/b", "", flag + "s=/a --image-service-endpoint=/b"},
		"no value, a flag": {"--x", "", "--x"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Flag(test.text); got != test.is {
				t.Errorf("it says %q, want %q", got, test.is)
			}
			if got := SetFlag(test.text, at); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
