package delegatedauth

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

func TestLoopback(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1:10349": true, "localhost:10349": true, "[::1]:10349": true, "127.3.2.1:1": true, "[::ffff:127.0.0.1]:1": true,
		":10349": false, "0.0.0.0:10349": false, "[::]:10349": false, "10.0.0.1:10349": false, "0": false, "localhost.example:1": false,
	} {
		if got := Loopback(address); got != want {
			t.Errorf("Loopback(%q) = %v", address, got)
		}
	}
}

// Who is not known gets 401, who may not 403, and who asks while the API server does not
// say 500. A request without a token costs the API server nothing.
func TestGuard(t *testing.T) {
	var asked atomic.Int32
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
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
			if review.Spec.User == "unlucky" {
				http.Error(w, "no", http.StatusForbidden)
				return
			}
			of := review.Spec.NonResourceAttributes
			review.Status.Allowed = review.Spec.User == "prometheus" && of != nil && of.Path == "/metrics" && of.Verb == "get"
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
	guard, err := New(client)
	if err != nil {
		t.Fatal(err)
	}
	handler := guard.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "numbers") }))
	// The token is taken out of a request that it was judged by: each is judged once.
	for _, test := range []struct {
		path, token string
		code        int
		body        string
	}{
		{"/metrics", "", http.StatusUnauthorized, "Unauthorized"},
		{"/metrics", "stolen", http.StatusUnauthorized, "Unauthorized"},
		{"/metrics", "token-of-mallory", http.StatusForbidden, `user "mallory" may not get /metrics`},
		{"/metrics", "token-of-unlucky", http.StatusInternalServerError, "does not say whether you may"},
		{"/readyz", "token-of-prometheus", http.StatusForbidden, "may not get /readyz"},
		{"/metrics", "token-of-prometheus", http.StatusOK, "numbers"},
	} {
		request, before := httptest.NewRequest("GET", test.path, nil), asked.Load()
		if test.token != "" {
			request.Header.Set("Authorization", "Bearer "+test.token)
		}
		got := httptest.NewRecorder()
		if handler.ServeHTTP(got, request.Clone(t.Context())); got.Code != test.code || !strings.Contains(got.Body.String(), test.body) {
			t.Errorf("%s with token %q: %d %q, want %d %q", test.path, test.token, got.Code, got.Body, test.code, test.body)
		}
		if allowed := guard.Allows(request); allowed != (test.code == http.StatusOK) {
			t.Errorf("%s with token %q: allowed %v", test.path, test.token, allowed)
		}
		if calls := asked.Load() - before; (calls > 0) != (test.token != "") {
			t.Errorf("%s with token %q: %d calls", test.path, test.token, calls)
		}
	}
}
