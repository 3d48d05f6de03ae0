package health

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/kubeslot/kubeslot/test/await"
	"github.com/kubeslot/kubeslot/test/need"
)

func check(name string, advice bool, err error) Check {
	return Check{Name: name, Advice: advice, Run: func(context.Context) error { return err }}
}

func TestReport(t *testing.T) {
	down := errors.New("connection refused")
	for _, test := range []struct {
		name   string
		path   string
		checks []Check
		code   int
		says   []string
	}{
		{"all well", "/readyz", []Check{check("cri", false, nil)}, 200, []string{"[+]cri ok", "readyz check passed"}},
		{"one fails", "/readyz", []Check{check("cri", false, down), check("socket", false, nil)}, 503,
			[]string{"[-]cri failed: connection refused", "[+]socket ok", "readyz check failed"}},
		{"the API server is down", "/readyz", []Check{check("cri", false, nil), check("informers", true, down)}, 200,
			[]string{"[!]informers: connection refused (advice)", "readyz check passed"}},
		{"not alive", "/healthz", []Check{check("socket", false, down)}, 503, []string{"healthz check failed"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := Endpoints{Metrics: http.NotFoundHandler(), Live: test.checks, Ready: test.checks}
			got := httptest.NewRecorder()
			e.Handler().ServeHTTP(got, httptest.NewRequest("GET", test.path, nil))
			if got.Code != test.code {
				t.Errorf("code %d, want %d", got.Code, test.code)
			}
			for _, part := range test.says {
				if !strings.Contains(got.Body.String(), part) {
					t.Errorf("%q does not say %q", got.Body, part)
				}
			}
		})
	}
}

func TestServesUntilTheContextIsDone(t *testing.T) {
	address := fmt.Sprint("127.0.0.1:", need.Port(t))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	e := Endpoints{Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "numbers") })}
	go func() { defer close(ended); e.Serve(ctx, address) }()
	defer func() { stop(); <-ended }()
	var resp *http.Response
	await.That(t, "the endpoints to be served", func() (err error) {
		resp, err = http.Get("http://" + address + "/metrics")
		return err
	})
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "numbers" {
		t.Errorf("got %q, %v", body, err)
	}
}

// Whoever connects cannot have any number of checks run at once: each takes connections to
// the runtime and to our own socket.
func TestFewChecksRunAtOnce(t *testing.T) {
	const requests = 50
	var running atomic.Int32
	entered, end := make(chan struct{}, requests), make(chan struct{})
	slow := Check{Name: "slow", Run: func(context.Context) error {
		if n := running.Add(1); n > checking {
			t.Errorf("%d run at once, want at most %d", n, checking)
		}
		defer running.Add(-1)
		entered <- struct{}{}
		<-end
		return nil
	}}
	handler := Endpoints{Metrics: http.NotFoundHandler(), Live: []Check{slow}, Ready: []Check{check("fast", false, nil)}}.Handler()
	get := func(path string) int {
		got := httptest.NewRecorder()
		handler.ServeHTTP(got, httptest.NewRequest("GET", path, nil))
		return got.Code
	}
	var all sync.WaitGroup
	for range requests {
		all.Go(func() {
			if code := get("/healthz"); code != http.StatusOK {
				t.Errorf("code %d", code)
			}
		})
	}
	for range checking {
		<-entered
	}
	if code := get("/readyz"); code != http.StatusOK { // is not kept by the other path's
		t.Errorf("/readyz: %d", code)
	}
	close(end)
	all.Wait()
}
