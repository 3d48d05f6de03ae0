package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRun(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "pod.yaml")
	if err := os.WriteFile(bad, []byte("spec: {container: []}"), 0o600); err != nil {
		t.Fatal(err)
	}
	device := []string{"test", "--variable=DEBUG_ECHO_DESCRIPTION", "--value=helm-test"}
	for name, tc := range map[string]struct {
		args, env []string
		out, err  string
	}{
		"the device": {device, []string{"A=b", "DEBUG_ECHO_DESCRIPTION=helm-test"},
			"This container has its device: DEBUG_ECHO_DESCRIPTION=helm-test\n", ""},
		"one of several": {device, []string{"DEBUG_ECHO_DESCRIPTION_8120FE=helm-test"},
			"This container has its device: DEBUG_ECHO_DESCRIPTION_8120FE=helm-test\n", ""},
		"another device": {device, []string{"DEBUG_ECHO_DESCRIPTION=gate", "OTHER=helm-test"}, "",
			"runs without its device"},
		"no device":  {device, nil, "", `no variable DEBUG_ECHO_DESCRIPTION is "helm-test"`},
		"no hook":    {nil, nil, "", "which? chart-hooks test|uninstall"},
		"no release": {[]string{"uninstall"}, nil, "", "--release and --namespace are needed"},
		"no time": {[]string{"uninstall", "--release=a", "--namespace=b", "--timeout=0"}, nil, "",
			"--timeout 0s: want more than 0s"},
		"no file": {[]string{"uninstall", "--release=a", "--namespace=b", "--pod=/no/such"}, nil, "",
			"--pod: open /no/such"},
		"no pod in the file": {[]string{"uninstall", "--release=a", "--namespace=b", "--pod=" + bad}, nil, "", `unknown field "container"`},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			err := run(t.Context(), tc.args, tc.env, &out)
			if out.String() != tc.out && tc.out != "" {
				t.Errorf("it says %q, want %q", out.String(), tc.out)
			}
			if tc.err == "" && err != nil || tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) {
				t.Errorf("run() = %v, want %q", err, tc.err)
			}
		})
	}
}
