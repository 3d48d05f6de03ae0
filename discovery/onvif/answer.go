package onvif

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"regexp"
)

const (
	// maxResponse is how many bytes an answer of a camera may have. GetNetworkInterfaces
	// has some KiB.
	maxResponse = 256 << 10

	// maxEcho is how many bytes a camera may send before its status line. A request of
	// ours has 2 KiB at most, of them the login 1 KiB.
	maxEcho = 8 << 10
)

// echoConn is a connection to a camera whose firmware may send the request back before the
// answer. What comes before the status line is skipped, unless it is more than maxEcho.
type echoConn struct {
	net.Conn
	answer *bufio.Reader
	begun  bool
}

func withoutEcho(conn net.Conn) net.Conn {
	return &echoConn{Conn: conn, answer: bufio.NewReaderSize(conn, maxEcho)}
}

func (c *echoConn) Read(p []byte) (int, error) {
	if !c.begun {
		c.begun = true
		c.skip()
	}
	return c.answer.Read(p)
}

// statusLine does not match a request's first line, which ends with the version.
var statusLine = regexp.MustCompile(`HTTP/1\.[01] [1-5][0-9][0-9]`)

const statusLineBytes = len("HTTP/1.1 200")

// skip discards what is before the status line. If there is none, it leaves everything to
// the reader, the error too.
func (c *echoConn) skip() {
	searched := 0
	for n := 1; n <= maxEcho; n = c.answer.Buffered() + 1 {
		if _, err := c.answer.Peek(n); err != nil {
			return
		}
		text, _ := c.answer.Peek(c.answer.Buffered())
		if at := statusLine.FindIndex(text[searched:]); at != nil {
			_, _ = c.answer.Discard(searched + at[0])
			return
		}
		searched = max(0, len(text)-statusLineBytes+1)
	}
}

// readBody reads an answer's body. It is decompressed if it is compressed, and not if a
// header says so: no compression was asked for, and some cameras have the header alone.
func readBody(body io.Reader) ([]byte, error) {
	text, err := readBounded(body)
	if err != nil || !bytes.HasPrefix(text, []byte{0x1f, 0x8b}) {
		return text, err
	}
	plain, err := gzip.NewReader(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("answer: %w", err)
	}
	return readBounded(plain)
}

func readBounded(r io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxResponse+1))
	if err == nil && len(text) > maxResponse {
		err = fmt.Errorf("the answer has more than %d bytes", maxResponse)
	}
	return text, err
}
