package opcua

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/gopcua/opcua/ua"
)

// Servers that do not keep to the protocol are problems of their own URLs: gopcua's
// client ends the process for the fourth of them.
func TestHostileServers(t *testing.T) {
	ack := func(receive uint32) []byte {
		return append([]byte("ACKF\x1c\x00\x00\x00"), words(0, receive, 65535, 0, 0)...)
	}
	opened := append([]byte("OPNF\x50\x00\x00\x00"), make([]byte, 0x48)...)
	for name, tc := range map[string]struct {
		sends []byte
		want  string // a part of the warning
	}{
		"hangs up":             {nil, "closed the connection"},
		"another protocol":     {[]byte("HTTP/1.1 400 Bad Request\r\n\r\n"), "not OPC UA"},
		"a frame of no length": {[]byte("ACKF\x00\x00\x00\x00"), "a frame \"ACKF\" of 0 bytes"},
		"buffers of 4 bytes":   {ack(4), "closed the connection"},
		"buffers of 4 GiB":     {ack(0xffffffff), "closed the connection"},
		"a frame of 2 GB":      {[]byte("ACKF\xff\xff\xff\x7f"), "a frame \"ACKF\" of 2147483647 bytes"},
		"a frame that ends":    {[]byte("ACKF\x1c\x00\x00\x00\x00"), "closed the connection"},
		"an error": {append([]byte("ERRF\x10\x00\x00\x00"),
			words(uint32(ua.StatusBadTCPEndpointURLInvalid), 0xffffffff)...),
			"server refuses: BadTCPEndpointURLInvalid (0x80830000)"},
		"an empty channel":       {append(ack(8192), []byte("OPNF\x08\x00\x00\x00")...), "ends too early"},
		"a channel with secrets": {append(ack(8192), append([]byte("OPNF\x20\x00\x00\x00"), append(words(1, 4), "sign............"...)...)...), "security policy \"sign\""},
		"a channel for another":  {append(ack(8192), opened...), "security policy \"\""},
		"another answer":         {append(ack(8192), ack(8192)...), "for an answer to"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t)
			s.set(func() {
				s.behave = func(conn net.Conn) {
					_, _ = conn.Write(tc.sends)
					_ = conn.(*net.TCPConn).CloseWrite()
					_, _ = io.Copy(io.Discard, conn)
				}
			})
			d := discover(t, &Handler{}, urls(s.url))
			d.wants("no server")
			d.warns("no OPC UA server at "+s.url, tc.want)
		})
	}
}

// A server that sends a byte now and then is no longer waited for than one that is
// silent, and one that sends without end takes no more memory than an answer may.
func TestEndlessAnswers(t *testing.T) {
	endless := func(conn net.Conn) {
		s := &fakeServer{t: t}
		client, server := net.Pipe()
		defer client.Close()
		go s.handle(server)
		f, peer := &frames{conn: conn}, &frames{conn: client}
		for range 2 { // Hello and the channel, as any server
			kind, body, err := f.read()
			if err != nil {
				return
			}
			_ = peer.write(kind, body)
			if kind, body, err = peer.read(); err == nil {
				_ = f.write(kind, body)
			}
		}
		if _, _, err := f.read(); err != nil {
			return
		}
		for f.write("MSGC", words(9, 8, 1, 2), make([]byte, 60_000)) == nil {
			continue
		}
	}
	drip := func(conn net.Conn) {
		for {
			if _, err := conn.Write([]byte("A")); err != nil {
				return
			}
			time.Sleep(time.Second)
		}
	}
	for name, tc := range map[string]struct {
		behave  func(net.Conn)
		want    string
		timeout time.Duration
	}{
		"without end": {endless, "an answer of more than 1048576 bytes", time.Hour},
		"by drips":    {drip, "i/o timeout", 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t)
			s.set(func() { s.behave = tc.behave })
			discover(t, &Handler{askTimeout: tc.timeout}, urls(s.url)).warns("no OPC UA server at "+s.url, tc.want)
		})
	}
}

// A panic of the code that reads an answer is the URL's failure.
func TestAPanicIsAFailure(t *testing.T) {
	asking := make(chan struct{})
	close(asking) // so that sending to it panics
	_, _, err := (&source{}).round(t.Context(), asking)
	if err == nil || !strings.HasPrefix(err.Error(), "panic: ") {
		t.Errorf("round() = %v, want a panic", err)
	}
}
