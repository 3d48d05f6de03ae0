package remote

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kubeslot/kubeslot/discovery"
)

// kind is the first byte of a frame between a Server and a worker. The length of the content
// follows in four bytes, and the content.
type kind byte

const (
	asked  kind = iota // the Server's one frame: a question, in JSON
	opened             // the handler begins, or is connected
	listed             // a DiscoverResponse
	ended              // the last one: a byte that is gRPC's code, and a message
)

const (
	// answerTimeout is how long a worker may take until it answers a question, besides what the
	// handler may take.
	answerTimeout = 10 * time.Second

	// frameCost is how many bytes of bounds.reading each frame takes besides its own.
	frameCost = 1 << 10
)

// question is what a Server asks a worker.
type question struct {
	Handler    string            `json:"handler,omitempty"` // "" for a registered one, at target
	Target     target            `json:"target"`
	Details    string            `json:"details"`
	Properties map[string][]byte `json:"properties,omitempty"`
}

// target is how to speak to a registered handler.
type target struct {
	Authority string        `json:"authority,omitempty"`
	TLS       bool          `json:"tls,omitempty"` // with a certificate that one of CABundle has signed
	CABundle  []byte        `json:"caBundle,omitempty"`
	Timeout   time.Duration `json:"timeout,omitempty"` // until it speaks HTTP/2
}

// writeFrame writes a frame, whose content may be in pieces.
func writeFrame(conn net.Conn, k kind, content ...[]byte) error {
	length := 0
	for _, piece := range content {
		length += len(piece)
	}
	frame := net.Buffers{binary.BigEndian.AppendUint32([]byte{byte(k)}, uint32(length))}
	frame = append(frame, content...)
	_, err := frame.WriteTo(conn)
	return err
}

// pipe is an end of a connection between a Server and a worker. What a Server reads is not trusted.
type pipe struct {
	net.Conn
	ctx    context.Context // the Discover's; the connection is closed with it
	bounds *bounds
}

// ask asks the worker, until ctx ends, and returns once the handler begins. Errors of gRPC are the
// handler's.
func (s *Server) ask(ctx context.Context, peer net.Conn, q question, request discovery.Request) (*pipe, error) {
	conn, err := s.config.Worker.Connect(ctx, peer)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { conn.Close() })
	p := &pipe{conn, ctx, s.bounds}
	q.Details, q.Properties, q.Target.Timeout = request.Details, request.Properties, s.connectTimeout
	content, _ := json.Marshal(q)                                          // of what it has, nothing can fail
	_ = conn.SetDeadline(time.Now().Add(s.connectTimeout + answerTimeout)) // fails once the connection is closed
	if err := writeFrame(conn, asked, content); err != nil {
		return nil, fmt.Errorf("ask the discovery worker: %w", err)
	}
	answer, err := p.next(opened)
	if err != nil {
		return nil, err
	}
	answer.release()
	return p, conn.SetDeadline(time.Time{})
}

// next reads a frame that is to be of the kind. It reads one of more than smallBytes only while it
// has one of bounds.large. How the handler ended the stream is an error.
func (p *pipe) next(want kind) (is list, err error) {
	var header [5]byte
	switch _, err := io.ReadFull(p, header[:]); {
	case errors.Is(err, io.EOF):
		return list{}, fmt.Errorf("%w: it has closed the connection", ErrNoWorker)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return list{}, errors.New("the discovery worker does not answer")
	case err != nil:
		return list{}, err
	}
	announced := binary.BigEndian.Uint32(header[1:])
	if announced > maxMessageBytes {
		return list{}, fmt.Errorf("a message of %d bytes, of %d that are allowed", announced, maxMessageBytes)
	}
	k, length, release := kind(header[0]), int(announced), func() {}
	defer func() {
		if err != nil {
			release()
		}
	}()
	if length > smallBytes {
		select {
		case p.bounds.large <- struct{}{}:
			release = func() { <-p.bounds.large }
		case <-p.ctx.Done():
			return list{}, p.ctx.Err()
		}
		_ = p.SetReadDeadline(time.Now().Add(largeTimeout)) // fails once the connection is closed
		defer p.SetReadDeadline(time.Time{})
	}
	content := make([]byte, length)
	if _, err := io.ReadFull(p, content); err != nil {
		return list{}, fmt.Errorf("a message of %d bytes: %w", length, err)
	}
	if err := p.bounds.reading.WaitN(p.ctx, length+frameCost); err != nil {
		return list{}, err
	}
	switch {
	case k == want:
		return list{content, release}, nil
	case k != ended || length == 0:
		return list{}, fmt.Errorf("the discovery worker sent a message of kind %d, want %d", k, want)
	case codes.Code(content[0]) == codes.OK:
		return list{}, errors.New("the handler ended the stream, though it should go on")
	}
	return list{}, status.Error(codes.Code(content[0]), shorten(string(content[1:])))
}
