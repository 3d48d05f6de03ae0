package connection

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// api is an API server that counts connections and holds requests until release is closed.
func api(t *testing.T) (config *rest.Config, connections *atomic.Int32, arrived chan struct{}, release chan struct{}) {
	t.Helper()
	connections, arrived, release = &atomic.Int32{}, make(chan struct{}, 100), make(chan struct{})
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush() // as a watch does
		arrived <- struct{}{}
		<-release
	}))
	server.EnableHTTP2 = true
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	server.StartTLS()
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}, connections, arrived, release
}

// get asks once; its answer ends with the test.
func get(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	return response.Body.Close()
}

// Requests that begin together, and go on together, share one connection.
func TestOneConnectionForAll(t *testing.T) {
	config, connections, arrived, release := api(t)
	client, err := newClient(config, time.Hour) // a first dial that takes long has others dial, too
	if err != nil {
		t.Fatal(err)
	}
	const together = 20
	var asking sync.WaitGroup
	for range together {
		asking.Go(func() {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host, nil)
			if err != nil {
				t.Error(err)
				return
			}
			response, err := client.Do(request)
			if err != nil {
				t.Error(err)
				return
			}
			<-release
			_ = response.Body.Close()
		})
	}
	for range together {
		<-arrived // all are held at once
	}
	close(release)
	asking.Wait()
	if n := connections.Load(); n != 1 {
		t.Errorf("%d connections for %d requests, want 1", n, together)
	}
}

// A dial that hangs does not keep others from connecting.
func TestAHangingDial(t *testing.T) {
	config, _, _, release := api(t)
	close(release)
	var dials atomic.Int32
	hanging := make(chan struct{})
	config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		if dials.Add(1) == 1 {
			close(hanging)
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	client, err := newClient(config, time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() { first <- get(ctx, client, config.Host) }()
	<-hanging
	if err := get(t.Context(), client, config.Host); err != nil {
		t.Errorf("while another's dial hangs: %v", err)
	}
	cancel()
	if err := <-first; err == nil {
		t.Log("the first request took the second's connection") // which is as good
	}
}

// closes says whether it was closed.
type closes struct {
	io.Reader
	closed atomic.Bool
}

func (c *closes) Close() error { c.closed.Store(true); return nil }

// Who waits for another's connection can give up.
func TestGivingUpWhileAnotherDials(t *testing.T) {
	config, _, _, _ := api(t)
	hanging := make(chan struct{})
	config.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
		close(hanging)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	client, err := newClient(config, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() { first <- get(ctx, client, config.Host) }()
	<-hanging
	gone, giveUp := context.WithCancel(t.Context())
	giveUp()
	if err := get(gone, client, config.Host); !errors.Is(err, context.Canceled) {
		t.Errorf("gave up with %v", err)
	}
	body := &closes{Reader: strings.NewReader("{}")}
	write, err := http.NewRequestWithContext(gone, http.MethodPost, config.Host, body)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Transport.RoundTrip(write); !errors.Is(err, context.Canceled) || !body.closed.Load() {
		t.Errorf("gave up with %v, body closed: %v", err, body.closed.Load())
	}
	cancel()
	<-first
}
