package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Off the loopback, metrics are for who has a token that the API server knows and the
// permission to get /metrics.
func TestMetricsOffTheLoopbackAreSecured(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		var answer any
		switch {
		case strings.HasSuffix(r.URL.Path, "/tokenreviews"):
			review := &authenticationv1.TokenReview{}
			if err := json.NewDecoder(r.Body).Decode(review); err != nil {
				t.Error(err)
			}
			review.Status.Authenticated = review.Spec.Token != "unknown"
			review.Status.User.Username = review.Spec.Token
			answer = review
		case strings.HasSuffix(r.URL.Path, "/subjectaccessreviews"):
			review := &authorizationv1.SubjectAccessReview{}
			if err := json.NewDecoder(r.Body).Decode(review); err != nil {
				t.Error(err)
			}
			asks := review.Spec.NonResourceAttributes
			review.Status.Allowed = review.Spec.User == "reader" && asks != nil && asks.Path == "/metrics" && asks.Verb == "get"
			answer = review
		default:
			t.Errorf("asks the API server for %s", r.URL.Path)
		}
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(answer)
	}))
	t.Cleanup(api.Close)
	kube, err := kubernetes.NewForConfigAndClient(&rest.Config{Host: api.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}, api.Client())
	if err != nil {
		t.Fatal(err)
	}
	for address, secured := range map[string]bool{
		"127.0.0.1:10360": false, "localhost:10360": false, "[::1]:1": false,
		":10360": true, "0.0.0.0:10360": true, "10.1.2.3:10360": true,
	} {
		handler, config, err := metricsHandler(t.Context(), address, kube)
		if err != nil {
			t.Fatal(err)
		}
		response := httptest.NewRecorder()
		handler.ServeHTTP(response, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		if open := response.Code == http.StatusOK; open == secured || (config != nil) != secured {
			t.Errorf("%s: %d without a token, TLS %v", address, response.Code, config != nil)
		}
	}
	handler, _, err := metricsHandler(t.Context(), ":10360", kube)
	if err != nil {
		t.Fatal(err)
	}
	for token, want := range map[string]int{"": http.StatusUnauthorized, "unknown": http.StatusUnauthorized, "somebody": http.StatusForbidden, "reader": http.StatusOK} {
		request := httptest.NewRequest(http.MethodGet, "/metrics", nil)
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		response := httptest.NewRecorder()
		if handler.ServeHTTP(response, request); response.Code != want {
			t.Errorf("with token %q: %d, want %d", token, response.Code, want)
		}
	}
}
