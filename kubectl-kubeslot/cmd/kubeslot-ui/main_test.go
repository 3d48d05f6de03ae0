package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFlags(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		want string // part of the error; "" for none
	}{
		"defaults": {nil, ""},
		"all": {[]string{"--bind-address=127.0.0.1:1", "--max-sessions=1", "--kubeconfig=/dev/null"},
			""},
		"no port":       {[]string{"--bind-address=localhost"}, "--bind-address"},
		"no kubeconfig": {[]string{"--kubeconfig=/no/such"}, "--kubeconfig"},
		"no key":        {[]string{"--tls-cert-file=/dev/null"}, "--tls-private-key-file go together"},
		"no such certificate": {[]string{"--tls-cert-file=/no/such", "--tls-private-key-file=/dev/null"},
			"--tls-cert-file"},
		"no sessions": {[]string{"--max-sessions=0"}, "--max-sessions"},
	} {
		t.Run(name, func(t *testing.T) {
			o := &options{}
			groups := o.flags()
			for _, set := range groups.FlagSets {
				set.ParseErrorsAllowlist.UnknownFlags = true
				if err := set.Parse(tc.args); err != nil {
					t.Fatal(err)
				}
			}
			if err := o.validate(); (err == nil) != (tc.want == "") || err != nil &&
				!strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
}

// A pod needs no token to find its API server, but its CA; elsewhere a kubeconfig names it.
func TestAPIServer(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	if _, err := (&options{}).apiServer(); err == nil || !strings.Contains(err.Error(), "--kubeconfig") {
		t.Errorf("outside a pod: %v", err)
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
	t.Setenv("KUBERNETES_SERVICE_PORT", "443")
	ca := filepath.Join(t.TempDir(), "ca.crt")
	o := &options{clusterCA: ca}
	if _, err := o.apiServer(); err == nil || !strings.Contains(err.Error(), "kube-root-ca.crt") {
		t.Errorf("in a pod without the CA: %v", err)
	}
	if err := os.WriteFile(ca, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if config, err := o.apiServer(); err != nil || config.Host != "https://[fd00::1]:443" || config.CAFile != ca {
		t.Errorf("in a pod: %v, %v", config, err)
	}
}
