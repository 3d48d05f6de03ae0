package health

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
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
	kubefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/kubeslot/kubeslot/serve/delegatedauth"
)

// Over the network only those read metrics, and why a check fails, whom the API server
// lets; whether kubecri is alive and ready is everybody's to ask.
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
			review.Status.Allowed = review.Spec.User == "prometheus" && (asked.Path == "/metrics" || asked.Path == "/readyz") && asked.Verb == "get"
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
	guard, err := delegatedauth.New(client)
	if err != nil {
		t.Fatal(err)
	}
	socket := errors.New("dial unix /run/kubecri.sock: connection refused")
	e := Endpoints{Guard: guard, Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "numbers") }),
		Live: []Check{check("socket", false, nil)}, Ready: []Check{check("socket", false, socket), check("device-plugins", true, errors.New("gpu: no driver"))}}
	const (
		network, node = "192.0.2.1:1234", "127.0.0.1:1234"
		withheld      = "[-]socket failed: reason withheld\n[!]device-plugins: reason withheld (advice)\nreadyz check failed\n"
		all           = "[-]socket failed: dial unix /run/kubecri.sock: connection refused\n[!]device-plugins: gpu: no driver (advice)\nreadyz check failed\n"
	)
	var logs bytes.Buffer
	handler, logger := e.Handler(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&logs)))
	for _, test := range []struct {
		path, from, token string
		code              int
		body              string
	}{
		{"/metrics", network, "", http.StatusUnauthorized, "Unauthorized\n"},
		{"/metrics", node, "", http.StatusUnauthorized, "Unauthorized\n"}, // any pod of the host's network is there
		{"/metrics", network, "stolen", http.StatusUnauthorized, "Unauthorized\n"},
		{"/metrics", network, "token-of-mallory", http.StatusForbidden, `user "mallory" may not get /metrics: bind the ClusterRole system:monitoring to it` + "\n"},
		{"/metrics", network, "token-of-prometheus", http.StatusOK, "numbers"},
		{"/healthz", network, "", http.StatusOK, "[+]socket ok\nhealthz check passed\n"},
		{"/readyz", network, "", http.StatusServiceUnavailable, withheld},
		{"/readyz", network, "stolen", http.StatusServiceUnavailable, withheld},
		{"/readyz", network, "token-of-mallory", http.StatusServiceUnavailable, withheld},
		{"/readyz", network, "token-of-prometheus", http.StatusServiceUnavailable, all},
		{"/readyz", node, "", http.StatusServiceUnavailable, all},
	} {
		request := httptest.NewRequest("GET", test.path, nil).WithContext(klog.NewContext(t.Context(), logger))
		if request.RemoteAddr = test.from; test.token != "" {
			request.Header.Set("Authorization", "Bearer "+test.token)
		}
		got := httptest.NewRecorder()
		if handler.ServeHTTP(got, request); got.Code != test.code || got.Body.String() != test.body {
			t.Errorf("%s from %s with token %q: %d %q, want %d %q", test.path, test.from, test.token, got.Code, got.Body, test.code, test.body)
		}
	}
	// The node's log has what is withheld, once.
	for _, want := range []string{`"A health check fails" check="socket" advice=false reason="dial unix`, `check="device-plugins" advice=true reason="gpu: no driver"`} {
		if n := strings.Count(logs.String(), want); n != 1 {
			t.Errorf("%d times %q in the log:\n%s", n, want, &logs)
		}
	}
}

// A reason that says for how long is not logged each time that the kubelet asks.
func TestReasonsThatChangeAreLoggedOnce(t *testing.T) {
	guard, err := delegatedauth.New(kubefake.NewClientset())
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	plugins := Check{Name: "device-plugins", Advice: true, Run: func(context.Context) error {
		asked++
		return fmt.Errorf("gpu: no driver, for %d0 seconds", asked)
	}}
	var logs bytes.Buffer
	logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&logs)))
	handler := Endpoints{Guard: guard, Metrics: http.NotFoundHandler(), Ready: []Check{plugins}}.Handler()
	for range 3 {
		request := httptest.NewRequest("GET", "/readyz", nil).WithContext(klog.NewContext(t.Context(), logger))
		request.RemoteAddr = "192.0.2.1:1234"
		handler.ServeHTTP(httptest.NewRecorder(), request)
	}
	if n := strings.Count(logs.String(), "A health check fails"); n != 1 || asked != 3 {
		t.Errorf("logged %d times of %d:\n%s", n, asked, &logs)
	}
}

func TestServingCertificates(t *testing.T) {
	var logs bytes.Buffer
	logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&logs)))
	own, err := ServingTLS(klog.NewContext(t.Context(), logger), "", "", "node-a")
	if err != nil || logs.Len() > 0 {
		t.Fatalf("without files, before a connection: %v, log %q", err, &logs)
	}
	for range 2 {
		pair, err := own.GetCertificate(&tls.ClientHelloInfo{})
		if err != nil || pair.Leaf == nil || pair.Leaf.VerifyHostname("node-a") != nil {
			t.Fatalf("without files: %v", err)
		}
	}
	if n := strings.Count(logs.String(), "Made a certificate"); n != 1 {
		t.Errorf("without files: made %d certificates for 2 connections", n)
	}
	certFile, keyFile := filepath.Join(t.TempDir(), "tls.crt"), filepath.Join(t.TempDir(), "tls.key")
	if _, err := ServingTLS(t.Context(), certFile, keyFile, "node-a"); err == nil ||
		!strings.Contains(err.Error(), certFile) {
		t.Errorf("files that are not there: %v", err)
	}
	write := func(host string) {
		certificate, key, err := cert.GenerateSelfSignedCertKey(host, nil, nil)
		if err := errors.Join(err, os.WriteFile(certFile, certificate, 0o600), os.WriteFile(keyFile, key, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	write("first.example")
	config, err := ServingTLS(t.Context(), certFile, keyFile, "node-a")
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
