package serve

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubeslot/kubeslot/test/await"
)

// server serves HTTP on the loopback, with bounds.
type server struct {
	*http.Server
	address string
	dropped atomic.Int32
	seen    atomic.Bool // a connection
	bounded *listener
}

func newServer(t *testing.T, bounds Bounds, handler http.HandlerFunc, change func(*http.Server)) *server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{Server: NewHTTPServer(t.Context(), handler), address: l.Addr().String()}
	if change != nil {
		change(s.Server)
	}
	states := s.ConnState
	s.ConnState = func(c net.Conn, state http.ConnState) { s.seen.Store(true); states(c, state) }
	bounds.Dropped = func() { s.dropped.Add(1) }
	s.bounded = Bounded(t.Context(), l, bounds).(*listener)
	ended := make(chan error, 1)
	go func() {
		if s.TLSConfig != nil {
			ended <- s.ServeTLS(s.bounded, "", "")
			return
		}
		ended <- s.Serve(s.bounded)
	}()
	t.Cleanup(func() {
		s.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return s
}

func (s *server) open() int {
	s.bounded.mu.Lock()
	defer s.bounded.mu.Unlock()
	return len(s.bounded.open)
}

// dial connects from the address.
func (s *server) dial(t *testing.T, from string) net.Conn {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Deadline: time.Now().Add(await.Patience)}
	c, err := dialer.DialContext(t.Context(), "tcp", s.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func ask(t *testing.T, c net.Conn) error {
	t.Helper()
	if err := c.SetDeadline(time.Now().Add(await.Patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		return err
	}
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, response.Body)
	return errors.Join(err, response.Body.Close())
}

func answer(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "well") }

// One address takes its own share and no more, and others are served as if it were not there.
func TestOneAddressHasItsShare(t *testing.T) {
	s := newServer(t, Bounds{Connections: 20, PerAddress: 4}, answer, nil)
	other := s.dial(t, "127.0.0.2")
	if err := ask(t, other); err != nil {
		t.Fatal(err)
	}
	var last net.Conn
	for range 200 {
		last = s.dial(t, "127.0.0.1")
	}
	if err := ask(t, other); err != nil { // on the same connection, which was idle longest
		t.Errorf("another address lost its connection: %v", err)
	}
	if err := ask(t, last); err != nil {
		t.Errorf("the newest of the address is not served: %v", err)
	}
	if open, dropped := s.open(), s.dropped.Load(); open != 5 || dropped != 196 {
		t.Errorf("%d are open and %d were dropped, want 5 and 196", open, dropped)
	}
}

// Many addresses have no more than the bound of all. A request that is served goes on, and
// new clients are served.
func TestManyAddressesHaveTheBoundOfAll(t *testing.T) {
	begun, end := make(chan struct{}), make(chan struct{})
	s := newServer(t, Bounds{Connections: 8, PerAddress: 4}, func(w http.ResponseWriter, r *http.Request) {
		if r.RemoteAddr[:10] == "127.0.0.2:" {
			close(begun)
			<-end
		}
		answer(w, r)
	}, nil)
	slow, answered := s.dial(t, "127.0.0.2"), make(chan error, 1)
	go func() { answered <- ask(t, slow) }()
	<-begun
	for i := range 200 {
		s.dial(t, net.IPv4(127, 0, 1, byte(i)).String())
	}
	if err := ask(t, s.dial(t, "127.0.0.3")); err != nil {
		t.Errorf("a new client is not served: %v", err)
	}
	if open := s.open(); open != 8 {
		t.Errorf("%d are open, want 8", open)
	}
	close(end)
	if err := <-answered; err != nil {
		t.Errorf("a request that was served when the others came: %v", err)
	}
}

// When all have a request, a new client is served nevertheless.
func TestAllAreServed(t *testing.T) {
	begun, end := make(chan struct{}, 3), make(chan struct{})
	s := newServer(t, Bounds{Connections: 3}, func(w http.ResponseWriter, r *http.Request) {
		begun <- struct{}{}
		<-end
		answer(w, r)
	}, nil)
	answered := make(chan error, 3)
	for range 3 {
		go func(c net.Conn) { answered <- ask(t, c) }(s.dial(t, "127.0.0.1"))
		<-begun
	}
	last := s.dial(t, "127.0.0.1")
	if err := <-answered; err == nil {
		t.Error("one was answered before it was")
	}
	close(end)
	if err := errors.Join(<-answered, <-answered, ask(t, last)); err != nil {
		t.Error(err)
	}
}

// What is closed, by the client or the server, counts no more.
func TestClosedConnectionsDoNotCount(t *testing.T) {
	s := newServer(t, Bounds{Connections: 8, PerAddress: 4}, answer, nil)
	for range 50 {
		c := s.dial(t, "127.0.0.1")
		if err := ask(t, c); err != nil {
			t.Fatal(err)
		}
		c.Close()
		await.That(t, "no connection to be open", func() bool { return s.open() == 0 })
	}
	if dropped := s.dropped.Load(); dropped != 0 || len(s.bounded.from) != 0 {
		t.Errorf("%d were dropped, %v remain", dropped, s.bounded.from)
	}
}

// A client that has greeted stays, however long it is silent, while others do not greet.
func TestWhoHasGreetedStays(t *testing.T) {
	l, err := net.Listen("unix", t.TempDir()+"/s")
	if err != nil {
		t.Fatal(err)
	}
	bounded := Bounded(t.Context(), l, Bounds{Connections: 4, Greeting: HTTP2Greeting})
	defer bounded.Close()
	accepted := make(chan net.Conn)
	go func() {
		for {
			c, err := bounded.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	connect := func(greeting string) (client, server net.Conn) {
		client, err := net.Dial("unix", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close() })
		server = <-accepted
		if _, err := io.WriteString(client, greeting); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(server, make([]byte, len(greeting))); err != nil {
			t.Fatal(err)
		}
		return client, server
	}
	client, kept := connect("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	for range 50 {
		connect("PRI * HTTP/2.0\r\n")
	}
	if _, err := io.WriteString(client, "x"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(kept, make([]byte, 1)); err != nil {
		t.Errorf("the client that greeted: %v", err)
	}
}

func TestAddressOf(t *testing.T) {
	for remote, want := range map[net.Addr]string{
		&net.TCPAddr{IP: net.ParseIP("192.0.2.7"), Port: 1}:             "192.0.2.7/32",
		&net.TCPAddr{IP: net.ParseIP("::ffff:192.0.2.7"), Port: 1}:      "192.0.2.7/32",
		&net.TCPAddr{IP: net.ParseIP("2001:db8:1:2:3:4:5:6"), Port: 1}:  "2001:db8:1:2::/64",
		&net.TCPAddr{IP: net.ParseIP("fe80::1"), Zone: "eth0", Port: 1}: "fe80::/64",
		&net.UnixAddr{Name: "@", Net: "unix"}:                           "invalid Prefix",
	} {
		if got := addressOf(remote).String(); got != want {
			t.Errorf("%s is of %s, want %s", remote, got, want)
		}
	}
}
