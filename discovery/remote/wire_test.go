package remote

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/test/await"
	pb "github.com/kubeslot/kubeslot/types/discovery/v0"
)

// wire is what a handler sees of one connection.
type wire struct {
	preface string
	headers map[string]string
	request *pb.DiscoverRequest
	pings   int
	err     error
}

// speak answers one stream with that many messages, by hand, until the last has
// been sent and acknowledged, and returns what the client sent by then.
func speak(conn net.Conn, messages [][]byte) (seen wire) {
	defer conn.Close()
	seen.headers = map[string]string{}
	preface := make([]byte, len(http2.ClientPreface))
	if _, seen.err = io.ReadFull(conn, preface); seen.err != nil {
		return seen
	}
	seen.preface = string(preface)
	framer := http2.NewFramer(conn, conn)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	framer.WriteSettings()
	var last [8]byte
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			seen.err = err
			return seen
		}
		switch f := frame.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				framer.WriteSettingsAck()
			}
		case *http2.PingFrame:
			if f.IsAck() && f.Data == last {
				return seen // it has read all that was sent before
			}
			if !f.IsAck() {
				seen.pings++
				framer.WritePing(true, f.Data)
			}
		case *http2.MetaHeadersFrame:
			for _, h := range f.Fields {
				seen.headers[h.Name] = h.Value
			}
		case *http2.DataFrame:
			if len(f.Data()) > 5 {
				seen.request = &pb.DiscoverRequest{}
				if seen.err = proto.Unmarshal(f.Data()[5:], seen.request); seen.err != nil {
					return seen
				}
			}
			if !f.StreamEnded() {
				continue
			}
			var block bytes.Buffer
			encoder := hpack.NewEncoder(&block)
			encoder.WriteField(hpack.HeaderField{Name: ":status", Value: "200"})
			encoder.WriteField(hpack.HeaderField{Name: "content-type", Value: "application/grpc"})
			framer.WriteHeaders(http2.HeadersFrameParam{StreamID: f.StreamID, BlockFragment: block.Bytes(), EndHeaders: true})
			for _, m := range messages {
				framed := append([]byte{0}, binary.BigEndian.AppendUint32(nil, uint32(len(m)))...)
				framer.WriteData(f.StreamID, false, append(framed, m...))
			}
			last = [8]byte{'l', 'a', 's', 't'}
			framer.WritePing(false, last)
		}
	}
}

// Handlers of other languages see plain gRPC: an authority that is a host name, which
// tonic's servers demand, and no HTTP/2 pings, after a few of which grpc-go's and C
// core's servers hang up. gRPC sends pings of its own when it measures bandwidth.
func TestOnTheWire(t *testing.T) {
	s := newServer(t, nil)
	l, err := net.Listen("unix", filepath.Join(s.config.Directory, "x.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	message, err := proto.Marshal(devices("a", "b"))
	if err != nil {
		t.Fatal(err)
	}
	var messages [][]byte
	for range 50 {
		messages = append(messages, message)
	}
	saw := make(chan wire, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			saw <- wire{err: err}
			return
		}
		saw <- speak(conn, messages)
	}()
	run := start(t, register(t, s, "x", true), discovery.Request{Details: "{}"})
	if got := ids(await.Next(t, "a report", run.reports)); got != "a b" {
		t.Fatalf("reported %q, want a and b", got)
	}
	got := await.Next(t, "what the handler saw", saw)
	if got.err != nil {
		t.Fatalf("the handler failed: %v", got.err)
	}
	for name, want := range map[string]string{
		":authority": "localhost", ":path": "/v0.DiscoveryHandler/Discover", ":scheme": "http", "content-type": "application/grpc",
	} {
		if got.headers[name] != want {
			t.Errorf("header %s is %q, want %q", name, got.headers[name], want)
		}
	}
	if got.request.GetDiscoveryDetails() != "{}" {
		t.Errorf("asked for %v", got.request)
	}
	if got.pings > 0 {
		t.Errorf("%d HTTP/2 pings for %d messages", got.pings, len(messages))
	}
}

// A pod whose node is gone closes nothing: TCP has to find out.
func TestTCPKeepalive(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := connect(t.Context(), address{network: "tcp", dial: l.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	for option, want := range map[string]struct{ level, name, value int }{
		"SO_KEEPALIVE":  {syscall.SOL_SOCKET, syscall.SO_KEEPALIVE, 1},
		"TCP_KEEPIDLE":  {syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE, int(15 * time.Second / time.Second)},
		"TCP_KEEPINTVL": {syscall.IPPROTO_TCP, syscall.TCP_KEEPINTVL, 15},
		"TCP_KEEPCNT":   {syscall.IPPROTO_TCP, syscall.TCP_KEEPCNT, 3},
	} {
		raw.Control(func(fd uintptr) {
			if got, err := syscall.GetsockoptInt(int(fd), want.level, want.name); err != nil || got != want.value {
				t.Errorf("%s is %d (%v), want %d", option, got, err, want.value)
			}
		})
	}
}

// No response, however made, makes the decoder panic or take more than it may.
func FuzzResponse(f *testing.F) {
	for _, m := range []*pb.DiscoverResponse{{}, devices("a", "b"), {Warnings: []string{"w"}, Shared: proto.Bool(true)},
		{Devices: []*pb.Device{{Id: "x", Properties: map[string]string{"k": "v"}, Mounts: []*pb.Mount{{HostPath: "/h"}}}}}} {
		data, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte{0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Add(bytes.Repeat([]byte{0x0b}, 100)) // groups in groups
	f.Fuzz(func(t *testing.T, data []byte) {
		var response pb.DiscoverResponse
		if err := proto.Unmarshal(data, &response); err != nil {
			return
		}
		parts, err := countParts(data)
		if err != nil {
			t.Fatalf("countParts() = %v for what can be decoded", err)
		}
		want := len(response.Devices) + len(response.Warnings)
		for _, d := range response.Devices {
			want += len(d.Properties) + len(d.Mounts) + len(d.DeviceSpecs)
		}
		if parts < want {
			t.Errorf("countParts() = %d, of at least %d", parts, want)
		}
		if result := decode(&response, true); len(result.Devices) != len(response.Devices) {
			t.Errorf("%d devices of %d", len(result.Devices), len(response.Devices))
		}
	})
}
