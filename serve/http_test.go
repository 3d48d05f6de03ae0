package serve

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/kubeslot/kubeslot/test/await"
)

// helloOnly is the beginning of a TLS handshake.
const helloOnly = "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"

// No client keeps a connection by being slow.
func TestSlowClientsAreGivenUp(t *testing.T) {
	for name, tc := range map[string]struct {
		tls, http2 bool
		send       string
	}{
		"silent":                     {},
		"half a header":              {send: "GET / HTTP/1.1\r\nHost:"},
		"half a body":                {send: "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n123"},
		"silent before TLS":          {tls: true},
		"half a TLS handshake":       {tls: true, send: helloOnly},
		"half a header after TLS":    {tls: true, send: "GET / HTTP/1.1\r\nHost:"},
		"no request after HTTP/2's":  {tls: true, http2: true, send: "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"},
		"no further request":         {send: "GET /small HTTP/1.1\r\nHost: x\r\n\r\n"},
		"does not read what it asks": {send: "GET / HTTP/1.1\r\nHost: x\r\n\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			handshakes := tc.tls && len(tc.send) > len(helloOnly)
			s := newServer(t, Bounds{Connections: 4}, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				if r.URL.Path != "/small" {
					for chunk := make([]byte, 1<<20); ; {
						if _, err := w.Write(chunk); err != nil {
							return
						}
					}
				}
			}, func(s *http.Server) {
				short := 50 * time.Millisecond
				if handshakes {
					short = 5 * time.Second // long enough for the handshake of a busy machine
				}
				for _, timeout := range []*time.Duration{&s.ReadHeaderTimeout, &s.ReadTimeout, &s.WriteTimeout, &s.IdleTimeout} {
					if *timeout == 0 {
						t.Error("a timeout is not set")
					}
					*timeout = short
				}
				if tc.tls {
					s.TLSConfig = testTLS(t)
				}
			})
			c := s.dial(t, "127.0.0.1")
			if handshakes {
				var protocols []string
				if tc.http2 {
					protocols = []string{"h2"}
				}
				c = tlsClient(t, c, protocols...)
			}
			if _, err := io.WriteString(c, tc.send); err != nil {
				t.Fatal(err)
			}
			await.That(t, "the connection to be closed", func() bool { return s.seen.Load() && s.open() == 0 })
		})
	}
}

func tlsClient(t *testing.T, c net.Conn, protocols ...string) net.Conn {
	t.Helper()
	client := tls.Client(c, &tls.Config{InsecureSkipVerify: true, NextProtos: protocols})
	if err := client.Handshake(); err != nil {
		t.Fatal(err)
	}
	return client
}

// testTLS has the certificate of httptest's servers.
func testTLS(t *testing.T) *tls.Config {
	t.Helper()
	other := httptest.NewTLSServer(nil)
	defer other.Close()
	return &tls.Config{Certificates: other.TLS.Certificates, NextProtos: []string{"h2", "http/1.1"}}
}

// An idle HTTP/2 connection is one that ends for others; one with a request is not.
func TestHTTP2SaysWhatIsServed(t *testing.T) {
	begun, end := make(chan struct{}), make(chan struct{})
	s := newServer(t, Bounds{Connections: 4}, func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 2 {
			close(begun)
			<-end
		}
		answer(w, r)
	}, func(s *http.Server) { s.TLSConfig = testTLS(t) })
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	answered := make(chan error, 1)
	go func() {
		response, err := (&http.Client{Transport: transport}).Get("https://" + s.address)
		if err == nil {
			if response.ProtoMajor != 2 {
				t.Errorf("served with %s", response.Proto)
			}
			err = response.Body.Close()
		}
		answered <- err
	}()
	<-begun
	for range 50 {
		s.dial(t, "127.0.0.1")
	}
	if err := ask(t, tlsClient(t, s.dial(t, "127.0.0.1"))); err != nil { // all were accepted
		t.Error(err)
	}
	close(end)
	if err := <-answered; err != nil {
		t.Errorf("a request that was served when others came: %v", err)
	}
	await.That(t, "no connection to count as served after its request", func() bool {
		s.bounded.mu.Lock()
		defer s.bounded.mu.Unlock()
		for c := range s.bounded.open {
			if c.served.Load() {
				return false
			}
		}
		return true
	})
}

// Clients decide how often their handshakes fail, and fill no log by it.
func TestTheLogIsBounded(t *testing.T) {
	var logs bytes.Buffer
	logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&logs)))
	s := NewHTTPServer(klog.NewContext(t.Context(), logger), nil)
	for range 1000 {
		s.ErrorLog.Print("http: TLS handshake error from 192.0.2.1:1: EOF")
	}
	if n := bytes.Count(logs.Bytes(), []byte("TLS handshake error")); n != 10 {
		t.Errorf("%d lines, want 10", n)
	}
}
