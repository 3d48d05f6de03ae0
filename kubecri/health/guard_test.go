package health

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
)

func TestLoopback(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1:10349": true, "localhost:10349": true, "[::1]:10349": true, "127.3.2.1:1": true,
		":10349": false, "0.0.0.0:10349": false, "[::]:10349": false, "10.0.0.1:10349": false, "0": false, "localhost.example:1": false,
	} {
		if got := Loopback(address); got != want {
			t.Errorf("Loopback(%q) = %v", address, got)
		}
	}
}

// Over the network only those read metrics whom the API server lets; whether kubecri is
// alive is everybody's to ask.
func TestWhoReadsOverTheNetwork(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var answer any
		switch r.URL.Path {
		case "/apis/authentication.k8s.io/v1/tokenreviews":
			review := &authenticationv1.TokenReview{}
			if err := json.NewDecoder(r.Body).Decode(review); err != nil {
				t.Error(err)
			}
			user, ok := strings.CutPrefix(review.Spec.Token, "token-of-")
			review.Status = authenticationv1.TokenReviewStatus{Authenticated: ok, User: authenticationv1.UserInfo{Username: user}}
			answer = review
		case "/apis/authorization.k8s.io/v1/subjectaccessreviews":
			review := &authorizationv1.SubjectAccessReview{}
			if err := json.NewDecoder(r.Body).Decode(review); err != nil {
				t.Error(err)
			}
			asked := review.Spec.NonResourceAttributes
			review.Status.Allowed = review.Spec.User == "prometheus" && asked.Path == "/metrics" && asked.Verb == "get"
			answer = review
		default:
			t.Errorf("asked for %s", r.URL)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	defer api.Close()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: api.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	if err != nil {
		t.Fatal(err)
	}
	guard, err := NewGuard(client)
	if err != nil {
		t.Fatal(err)
	}
	e := Endpoints{Guard: guard, Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "numbers") })}
	server := httptest.NewServer(e.Handler())
	defer server.Close()
	for _, test := range []struct {
		path, token string
		code        int
		body        string
	}{
		{"/metrics", "", http.StatusUnauthorized, "Unauthorized"},
		{"/metrics", "stolen", http.StatusUnauthorized, "Unauthorized"},
		{"/metrics", "token-of-mallory", http.StatusForbidden, `user "mallory" may not get /metrics`},
		{"/metrics", "token-of-prometheus", http.StatusOK, "numbers"},
		{"/healthz", "", http.StatusOK, "healthz check passed"},
		{"/readyz", "", http.StatusOK, "readyz check passed"},
	} {
		req, err := http.NewRequestWithContext(t.Context(), "GET", server.URL+test.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if test.token != "" {
			req.Header.Set("Authorization", "Bearer "+test.token)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != test.code || !strings.Contains(string(body), test.body) {
			t.Errorf("%s with token %q: %d %q, want %d %q", test.path, test.token, resp.StatusCode, body, test.code, test.body)
		}
	}
}

func TestServingCertificates(t *testing.T) {
	own, err := ServingTLS("", "", "node-a")
	if err != nil || len(own.Certificates) != 1 {
		t.Fatalf("without files: %v", err)
	}
	certFile, keyFile := filepath.Join(t.TempDir(), "tls.crt"), filepath.Join(t.TempDir(), "tls.key")
	if _, err := ServingTLS(certFile, keyFile, "node-a"); err == nil || !strings.Contains(err.Error(), certFile) {
		t.Errorf("files that are not there: %v", err)
	}
	write := func(host string) {
		certificate, key, err := cert.GenerateSelfSignedCertKey(host, nil, nil)
		if err := errors.Join(err, os.WriteFile(certFile, certificate, 0o600), os.WriteFile(keyFile, key, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	write("first.example")
	config, err := ServingTLS(certFile, keyFile, "node-a")
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"first.example", "renewed.example"} {
		write(host)
		pair, err := config.GetCertificate(&tls.ClientHelloInfo{})
		if err != nil || pair.Leaf == nil || pair.Leaf.VerifyHostname(host) != nil {
			t.Errorf("the certificate of %s is not served: %v", host, err)
		}
	}
}
