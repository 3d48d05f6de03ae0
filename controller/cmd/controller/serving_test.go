package main

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// added is a manager that keeps what it is to run.
type added struct {
	manager.Manager
	server *manager.Server
}

func (a *added) Add(r manager.Runnable) error {
	a.server = r.(*manager.Server)
	return nil
}

// Connections that ask for nothing keep nobody from the controller's servers.
func TestIdleConnectionsAreBounded(t *testing.T) {
	mgr := &added{}
	live := map[string]healthz.Checker{"ping": healthz.Ping}
	if err := addServer(t.Context(), mgr, serverHealth, "127.0.0.1:0", healthHandler(live, nil), nil); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- mgr.server.Server.Serve(mgr.server.Listener) }()
	defer func() {
		mgr.server.Server.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	}()
	if mgr.server.NeedLeaderElection() {
		t.Error("a replica that does not lead does not serve")
	}
	before := testutil.ToFloat64(dropped.WithLabelValues(serverHealth))
	address := mgr.server.Listener.Addr().String()
	for range 500 {
		c, err := net.DialTimeout("tcp", address, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	response, err := http.Get("http://" + address + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil || response.StatusCode != http.StatusOK {
		t.Errorf("/healthz: %d, %v", response.StatusCode, err)
	}
	if got := testutil.ToFloat64(dropped.WithLabelValues(serverHealth)) - before; got < 500-maxPerAddress {
		t.Errorf("%v connections were dropped, want at least %d", got, 500-maxPerAddress)
	}
}

func TestHealthHandler(t *testing.T) {
	handler := healthHandler(map[string]healthz.Checker{"ping": healthz.Ping},
		map[string]healthz.Checker{"caches": func(*http.Request) error { return errors.New("not read") }})
	for path, want := range map[string]int{"/healthz": 200, "/healthz/ping": 200, "/readyz": 500, "/readyz/caches": 500, "/readyz/ping": 404, "/": 404} {
		response := httptest.NewRecorder()
		if handler.ServeHTTP(response, httptest.NewRequest(http.MethodGet, path, nil)); response.Code != want {
			t.Errorf("%s: %d %s, want %d", path, response.Code, strings.TrimSpace(response.Body.String()), want)
		}
	}
}

func TestNoAddressServesNothing(t *testing.T) {
	mgr := &added{}
	if err := addServer(t.Context(), mgr, serverHealth, "0", nil, nil); err != nil || mgr.server != nil {
		t.Errorf("%v, %v", mgr.server, err)
	}
}
