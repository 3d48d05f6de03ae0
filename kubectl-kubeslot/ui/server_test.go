package ui

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
)

// pipes is a listener in memory, for a bubble: a network would be waited for outside of it.
type pipes chan net.Conn

func (p pipes) dial(context.Context, string, string) (net.Conn, error) {
	here, there := net.Pipe()
	p <- there
	return here, nil
}

func (p pipes) Accept() (net.Conn, error) {
	if c, open := <-p; open {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error { close(p); return nil }

func (pipes) Addr() net.Addr { return &net.UnixAddr{} }

// A stream of updates lives longer than the server's timeouts.
func TestStreamsOutliveTimeouts(t *testing.T) {
	for name, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2.0": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { streamOutlivesTimeouts(t, name, http2) })
		})
	}
}

func streamOutlivesTimeouts(t *testing.T, name string, http2 bool) {
	ctx, cancel := context.WithCancel(t.Context())
	c := small(t, time.Now())
	hub := NewHub(c, clock.RealClock{})
	go hub.Run(ctx)
	all := &viewer{Hub: hub, events: noEvents}
	server := NewServer(ctx, routes(func(http.ResponseWriter, *http.Request) *viewer { return all }))
	if server.ReadTimeout == 0 || server.WriteTimeout == 0 {
		t.Error("a slow client is waited for without end")
	}
	server.Protocols = &http.Protocols{}
	server.Protocols.SetHTTP1(!http2)
	server.Protocols.SetUnencryptedHTTP2(http2)
	listener := make(pipes)
	go server.Serve(listener)
	defer server.Close()
	defer cancel() // before it: it waits for the streams
	transport := &http.Transport{Protocols: server.Protocols, DialContext: listener.dial}

	began := time.Now()
	response, lines := streamOf(t, &http.Client{Transport: transport}, "http://page")
	if response.Proto != name {
		t.Fatalf("it is served with %s", response.Proto)
	}
	for i := 0; time.Since(began) < 2*(server.ReadTimeout+server.WriteTimeout); i++ {
		time.Sleep(server.ReadTimeout / 4)
		what := fmt.Sprint("failure ", i, ".")
		c.fail(errors.New(what))
		for !strings.Contains(lines.Text(), what) {
			if !lines.Scan() {
				t.Fatalf("the stream ends after %v: %v", time.Since(began), lines.Err())
			}
		}
	}
}

// Who sends a request without end is given up.
func TestSlowRequestsAreGivenUp(t *testing.T) {
	sessions, _ := sessionsOf(t, newAPIServer(t), 1, clock.RealClock{})
	server := httptest.NewUnstartedServer(nil)
	server.Config = NewServer(t.Context(), sessions.Handler())
	server.Config.ReadTimeout /= 100
	server.Start()
	defer server.Close()
	connection, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	fmt.Fprintf(connection, "POST /login HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 1000\r\n\r\ntoken=")
	if err := connection.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(connection); errors.Is(err, context.DeadlineExceeded) || isTimeout(err) {
		t.Error("the connection of a request that does not end stays open")
	}
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}
