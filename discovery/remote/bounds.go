package remote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"
	"google.golang.org/grpc/credentials"
)

// What all streams hold together of lists that are not reported yet. Of a Server that is at most
// maxStreams × 128 KiB for small lists, maxLarge × 16 MiB for large ones, and decodeBytes for those
// that are decoded: 256 MiB. Of a Runner it is maxStreams × 160 KiB, maxLarge × 18 MiB, and
// windowBytes for each of maxStreams that begins another list behind a large one: 140 MiB.
const (
	// maxStreams is more than a node has Configurations times endpoints that serve them. Half of them
	// are for the endpoints of one handler's name at most: others' streams find a place.
	maxStreams, maxStreamsOfHandler = 256, 128

	// smallBytes is how much of a list each connection may hold at any time, and how long a list
	// may be that waits until it is taken. For more a connection needs one of maxLarge places.
	smallBytes = 64 << 10

	// maxLarge is how many lists of more than smallBytes are there at a time, and largeTimeout how
	// long one may take to arrive: 16 MiB at 4 Mbit/s.
	maxLarge     = 2
	largeTimeout = 30 * time.Second

	// frameBytes is what gRPC needs for a DATA frame besides its content, and overheadBytes how
	// much of that a list of maxMessageBytes may need.
	frameBytes    = 128
	overheadBytes = 2 << 20

	// decodeBytes is how much memory lists that are decoded have at a time, and partBytes how much
	// a part of one takes at most, besides its text.
	decodeBytes = 192 << 20
	partBytes   = 352

	// readBytes is how much is read in a second from all connections together.
	readBytes = 64 << 20
)

// bounds are those of a Server's streams together. Safe for concurrent use.
type bounds struct {
	mu      sync.Mutex
	streams map[string]int // open ones, by the handler's name
	all     int            // open ones

	large    chan struct{} // has one for each list of more than smallBytes
	decoding *semaphore.Weighted
	reading  *rate.Limiter
}

func newBounds() *bounds {
	return &bounds{streams: map[string]int{}, large: make(chan struct{}, maxLarge),
		decoding: semaphore.NewWeighted(decodeBytes), reading: rate.NewLimiter(readBytes, readBytes)}
}

// meter returns the connection as a meter.
func (b *bounds) meter(conn net.Conn) *meter {
	m := &meter{Conn: conn, bounds: b}
	m.ctx, m.close = context.WithCancel(context.Background())
	return m
}

// open takes the place of a stream of a handler, until closed is called.
func (b *bounds) open(handler string) (closed func(), err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.all >= maxStreams:
		return nil, fmt.Errorf("%d streams of discovery handlers are open, which is the most", maxStreams)
	case b.streams[handler] >= maxStreamsOfHandler:
		return nil, fmt.Errorf("%d streams of the discovery handler %q are open, which is the most of one: have fewer "+
			"endpoints register as it, or fewer Configurations name it", maxStreamsOfHandler, handler)
	}
	b.all++
	b.streams[handler]++
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.all--
		if b.streams[handler]--; b.streams[handler] == 0 {
			delete(b.streams, handler)
		}
	}, nil
}

// meter is a connection to a handler. It reads a list of more than smallBytes only while it has one
// of bounds.large, so that flow control has the handler wait.
type meter struct {
	net.Conn
	bounds *bounds
	ctx    context.Context // ends when the connection is closed
	close  context.CancelFunc

	frames frames // Read's alone

	mu sync.Mutex
	// pending are the bytes of the list that is arriving, as gRPC holds them.
	pending int
	large   bool // this list has one of bounds.large
}

// Read implements net.Conn.
func (m *meter) Read(p []byte) (int, error) {
	if err := m.await(); err != nil {
		return 0, err
	}
	n, err := m.Conn.Read(p)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("a list of more than %d KiB took longer than %v", smallBytes>>10, largeTimeout)
	}
	all, data := m.frames.read(p[:n])
	m.mu.Lock()
	m.pending += data
	m.mu.Unlock()
	if m.bounds.reading.WaitN(m.ctx, min(all, readBytes)) != nil && err == nil {
		err = net.ErrClosed
	}
	return n, err
}

// await waits until the connection may read on.
func (m *meter) await() error {
	m.mu.Lock()
	pending, large := m.pending, m.large
	m.mu.Unlock()
	switch {
	case pending > maxMessageBytes+overheadBytes:
		return errors.New("a list came in too many frames")
	case pending <= smallBytes || large:
		return nil
	}
	select {
	case m.bounds.large <- struct{}{}:
	case <-m.ctx.Done():
		return net.ErrClosed
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.ctx.Err() != nil:
		<-m.bounds.large
		return net.ErrClosed
	case m.pending <= smallBytes: // the list is whole: its end was read before the wait
		<-m.bounds.large
		return nil
	}
	m.large = true
	return m.SetReadDeadline(time.Now().Add(largeTimeout))
}

// complete says that a list has arrived whole. release is to be called once it is no longer held.
func (m *meter) complete() (release func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pending = 0
	if !m.large {
		return func() {}
	}
	m.large = false
	_ = m.SetReadDeadline(time.Time{}) // fails once the connection is closed
	return func() { <-m.bounds.large }
}

// Close implements net.Conn.
func (m *meter) Close() error {
	m.close()
	m.complete()()
	return m.Conn.Close()
}

// frames follows the frames of HTTP/2: https://www.rfc-editor.org/rfc/rfc9113#section-4.1.
type frames struct {
	header [9]byte
	have   int // bytes of the header
	left   int // bytes of the frame's content that are to come
}

// read returns what gRPC needs for the frames that begin in the bytes, and for the DATA frames alone.
func (f *frames) read(p []byte) (all, data int) {
	for len(p) > 0 {
		if f.left > 0 {
			n := min(f.left, len(p))
			f.left, p = f.left-n, p[n:]
			continue
		}
		n := copy(f.header[f.have:], p)
		f.have, p = f.have+n, p[n:]
		if f.have < len(f.header) {
			break
		}
		f.have, f.left = 0, int(f.header[0])<<16|int(f.header[1])<<8|int(f.header[2])
		all += f.left + frameBytes
		if f.header[3] == 0 {
			data += f.left + frameBytes
		}
	}
	return all, data
}

// metered are credentials whose connections are meters: above TLS, where HTTP/2 is read.
type metered struct {
	credentials.TransportCredentials
	meter func(net.Conn) net.Conn
}

// ClientHandshake implements credentials.TransportCredentials.
func (c metered) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (
	net.Conn, credentials.AuthInfo, error) {
	secured, info, err := c.TransportCredentials.ClientHandshake(ctx, authority, conn)
	if err != nil {
		return nil, nil, err
	}
	return c.meter(secured), info, nil
}

// Clone implements credentials.TransportCredentials.
func (c metered) Clone() credentials.TransportCredentials {
	return metered{c.TransportCredentials.Clone(), c.meter}
}
