package main

import "testing"

// A person who checks has a kubeconfig where kubectl looks for it.
func TestKubeconfigOfCheck(t *testing.T) {
	for _, tc := range []struct{ flag, env, want string }{
		{"", "", ""},
		{"", "/root/.kube/config", "/root/.kube/config"},
		{"", ":/a:/b", "/a"},
		{"/flag", "/env", "/flag"},
	} {
		if got := kubeconfigOf(tc.flag, tc.env); got != tc.want {
			t.Errorf("kubeconfigOf(%q, %q) = %q, want %q", tc.flag, tc.env, got, tc.want)
		}
	}
}
