package opcua

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
)

// Limits of what a server may send. The first is announced to it in the Hello message.
const (
	maxFrameBytes   = 0xffff
	maxMessageBytes = 1 << 20 // that of a discovery server with 2,500 servers, at 400 bytes each
	// maxAnswerOfLearned is for servers that nobody has listed: they are up to maxRecords, and
	// answer with themselves.
	maxAnswerOfLearned = 16 << 10

	// maxLarge is how many answers of more than largeBytes are read at a time, in all: with what is
	// made of it, such an answer takes up to 6 MiB.
	maxLarge, largeBytes = 8, 64 << 10
)

// large has one for each of these answers.
var large = make(chan struct{}, maxLarge)

const frameHeaderBytes = 8

// The fourth letters of frames' types.
const (
	finalChunk     = 'F'
	continuedChunk = 'C'
	abortedChunk   = 'A'
)

// frames reads and writes the frames of OPC UA's TCP transport (Part 6, 7.1): three
// letters of type, one of 'F' final, 'C' continued, 'A' aborted, the length of the
// whole frame, and the body. The connection's deadline bounds each call.
type frames struct {
	conn   net.Conn
	buffer [maxFrameBytes]byte
}

// read returns the type with its fourth letter, such as "MSGF", and the body, which is
// valid until the next call. An error frame of the server is an error.
func (f *frames) read() (kind string, body []byte, err error) {
	header := f.buffer[:frameHeaderBytes]
	if _, err := io.ReadFull(f.conn, header); err != nil {
		return "", nil, ended(err)
	}
	kind = string(header[:4])
	size := binary.LittleEndian.Uint32(header[4:])
	if size < frameHeaderBytes || size > maxFrameBytes {
		return "", nil, fmt.Errorf("not OPC UA: a frame %q of %d bytes", kind, size)
	}
	body = f.buffer[frameHeaderBytes:size]
	if _, err := io.ReadFull(f.conn, body); err != nil {
		return "", nil, ended(err)
	}
	if kind[:3] == "ERR" {
		r := reader{rest: body}
		code := statusCode(r.uint32())
		return "", nil, fmt.Errorf("server refuses: %w", code)
	}
	return kind, body, nil
}

func (f *frames) write(kind string, parts ...[]byte) error {
	frame := append([]byte(kind), 0, 0, 0, 0)
	for _, part := range parts {
		frame = append(frame, part...)
	}
	binary.LittleEndian.PutUint32(frame[4:], uint32(len(frame)))
	_, err := f.conn.Write(frame)
	return err
}

// ended is the error of a connection that the server closed.
func ended(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the server closed the connection")
	}
	return err
}
