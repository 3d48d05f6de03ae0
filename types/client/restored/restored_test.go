package restored

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

type at string

func (a at) LastSyncResourceVersion() string { return string(a) }

// apiServer answers lists with resource versions by path, and everything with an error
// while away.
type apiServer struct {
	mu       sync.Mutex
	away     bool
	versions map[string]string
	asked    []string
	lists    chan struct{}
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away {
		http.Error(w, "away", http.StatusServiceUnavailable)
		return
	}
	s.asked = append(s.asked, r.URL.String())
	version, known := s.versions[r.URL.Path]
	if !known {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"metadata":{"resourceVersion":%q}}`, version)
	s.lists <- struct{}{}
}

func (s *apiServer) set(away bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = away
}

func TestGuard(t *testing.T) {
	pods := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	claims := schema.GroupVersionResource{Group: "kubeslot.io", Version: "v1alpha1", Resource: "slotclaims"}
	caches := []Cache{
		{Resource: pods, FieldSelector: "spec.nodeName=a", Informer: at("90")},
		{Resource: claims, Informer: at("1200")},
		{Resource: schema.GroupVersionResource{Version: "v1", Resource: "nodes"}, Informer: at("")}, // not synced: not asked for
	}
	for _, test := range []struct {
		name         string
		pods, claims string
		want         string
	}{
		{"nothing changed meanwhile", "1200", "1200", ""},
		{"more was written", "1300", "10000", ""},
		{"restored to what one cache has not seen", "1000", "1000",
			"its slotclaims.kubeslot.io are at resource version 1000, and 1200 was seen"},
		{"restored with --bump-revision", "1000000095", "1000001205", "its pods are at resource version 1000000095, and 90 was seen"},
		{"restored to before all of it", "9", "10", "its pods are at resource version 9, and 90 was seen"},
	} {
		t.Run(test.name, func(t *testing.T) {
			server := &apiServer{lists: make(chan struct{}, 100), versions: map[string]string{"/api/v1/pods": test.pods, "/apis/kubeslot.io/v1alpha1/slotclaims": test.claims}}
			http := httptest.NewServer(server)
			defer http.Close()
			config := &rest.Config{Host: http.URL}
			guard := New(config)
			client := kubernetes.NewForConfigOrDie(config).Discovery().RESTClient()
			request := func() { _, _ = client.Get().AbsPath("/healthz").DoRaw(t.Context()) }
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error, 1)
			go func() { ended <- guard.Run(ctx, client, caches...) }()

			request() // is answered, if only with NotFound
			settled := func() error {
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				return guard.Settled(ctx)
			}
			if err := guard.Settled(t.Context()); err != nil {
				t.Fatal(err)
			}
			server.set(true)
			request()
			if settled() == nil {
				t.Error("settled, though nobody has asked yet whether the API server was restored")
			}
			server.set(false)
			if test.want != "" {
				err := <-ended
				if found := (*Error)(nil); !errors.As(err, &found) || !strings.Contains(err.Error(), test.want) {
					t.Errorf("ended with %v, want %q", err, test.want)
				}
				if asked := strings.Join(server.asked, " "); !strings.Contains(asked, "/api/v1/pods?fieldSelector=spec.nodeName%3Da&limit=1") {
					t.Errorf("asked for %s", asked)
				}
				return
			}
			<-server.lists
			<-server.lists
			if err := guard.Settled(t.Context()); err != nil {
				t.Error(err)
			}
			select {
			case err := <-ended:
				t.Errorf("ended with %v", err)
			case <-time.After(100 * time.Millisecond):
			}
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("ended with %v when it was stopped", err)
			}
		})
	}
}

// A request that is refused again and again, such as an Event by a webhook that is broken, keeps nobody
// from learning that the API server's data are as they were.
func TestSettledWhileARequestFailsAgainAndAgain(t *testing.T) {
	server := &apiServer{lists: make(chan struct{}, 100), versions: map[string]string{"/api/v1/pods": "100"}}
	away := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/refused" {
			http.Error(w, "failed calling webhook", http.StatusInternalServerError)
			return
		}
		server.ServeHTTP(w, r)
	}))
	defer away.Close()
	config := &rest.Config{Host: away.URL, QPS: -1}
	guard := New(config)
	client := kubernetes.NewForConfigOrDie(config).Discovery().RESTClient()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	pods := Cache{Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Informer: at("90")}
	running.Go(func() { _ = guard.Run(ctx, client, pods) })
	refused := make(chan struct{})
	running.Go(func() {
		ticker := time.NewTicker(20 * time.Millisecond)
		defer ticker.Stop()
		for ctx.Err() == nil {
			_, _ = client.Get().AbsPath("/refused").DoRaw(ctx)
			select {
			case refused <- struct{}{}:
			case <-ticker.C:
			case <-ctx.Done():
			}
		}
	})
	<-refused
	patient, enough := context.WithTimeout(ctx, 2*time.Minute)
	defer enough()
	for range 2 { // also of those that ask later
		if err := guard.Settled(patient); err != nil {
			t.Fatal(err)
		}
	}
}

// Without an interruption nothing is asked.
func TestGuardIsIdle(t *testing.T) {
	config := &rest.Config{Host: "http://127.0.0.1:1"}
	guard := New(config)
	if len(guard.interrupted) != 0 {
		t.Error("interrupted from the start")
	}
	client := kubernetes.NewForConfigOrDie(config).Discovery().RESTClient()
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	_, _ = client.Get().AbsPath("/healthz").DoRaw(canceled)
	if len(guard.interrupted) != 0 {
		t.Error("a request that its sender gave up counts as an interruption")
	}
	_, _ = client.Get().AbsPath("/healthz").DoRaw(t.Context())
	if len(guard.interrupted) != 1 {
		t.Error("a refused connection is no interruption")
	}
}
