package opcua

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"
	"github.com/gopcua/opcua/uacp"

	"github.com/kubeslot/kubeslot/test/need"
)

// fakeServer answers as a server or a discovery server does, with what the test wants.
// It is on the loopback.
type fakeServer struct {
	t        *testing.T
	listener net.Listener
	url      string

	mu           sync.Mutex
	applications []*ua.ApplicationDescription
	network      []*ua.ServerOnNetwork             // nil: no FindServersOnNetwork
	name         func(n int) []*ua.ServerOnNetwork // instead of network, at the nth connection
	behave       func(conn net.Conn)               // instead of all that
	asked        int                               // connections
}

// serve starts a server.
func serve(t *testing.T, applications ...*ua.ApplicationDescription) *fakeServer {
	t.Helper()
	s := &fakeServer{t: t, applications: applications}
	s.listen(fmt.Sprint("127.0.0.1:", need.Port(t))) // which it has again when it is restarted
	return s
}

func (s *fakeServer) listen(address string) {
	s.t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		s.t.Fatal(err)
	}
	s.listener, s.url = l, "opc.tcp://"+l.Addr().String()+"/"
	s.t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go s.handle(conn)
		}
	}()
}

// stop closes the port; restart opens it again.
func (s *fakeServer) stop() { s.listener.Close() }
func (s *fakeServer) restart() {
	s.listen(strings.TrimPrefix(strings.TrimSuffix(s.url, "/"), "opc.tcp://"))
}

// set changes the server under its lock.
func (s *fakeServer) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *fakeServer) handle(conn net.Conn) {
	defer conn.Close()
	s.mu.Lock()
	behave := s.behave
	s.asked++
	s.mu.Unlock()
	if behave != nil {
		behave(conn)
		return
	}
	f := &frames{conn: conn}
	for {
		kind, body, err := f.read()
		if err != nil {
			return
		}
		switch kind {
		case "HELF":
			ack, _ := ua.Encode(&uacp.Acknowledge{ReceiveBufSize: 8192, SendBufSize: 8192})
			_ = f.write("ACKF", ack)
		case "OPNF":
			r := &reader{rest: body}
			r.uint32()
			policy := len(r.rest)
			r.string()
			r.string()
			r.string()
			policy -= len(r.rest)
			request := r.bytes(8)
			_ = f.write("OPNF", words(9), body[4:4+policy], request, encode(s.t, &ua.OpenSecureChannelResponse{
				ResponseHeader: responseHeader(), SecurityToken: &ua.ChannelSecurityToken{ChannelID: 9, TokenID: 8},
			}))
		case "MSGF":
			r := &reader{rest: body}
			if channel, token := r.uint32(), r.uint32(); channel != 9 || token != 8 {
				s.t.Errorf("a request with the channel %d and token %d", channel, token)
			}
			request := append([]byte(nil), r.bytes(8)...)
			message := s.answer(r.numericID(), r.rest)
			for len(message) > 100 { // chunks are as small as they like
				_ = f.write("MSGC", words(9, 8), request, message[:100])
				message = message[100:]
			}
			_ = f.write("MSGF", words(9, 8), request, message)
		case "CLOF":
			return
		default:
			s.t.Errorf("a frame %q", kind)
			return
		}
	}
}

func (s *fakeServer) answer(kind uint32, body []byte) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case kind == id.FindServersRequest_Encoding_DefaultBinary:
		return encode(s.t, &ua.FindServersResponse{ResponseHeader: responseHeader(), Servers: s.applications})
	case kind == id.FindServersOnNetworkRequest_Encoding_DefaultBinary && (s.network != nil || s.name != nil):
		if s.name != nil {
			s.network = s.name(s.asked)
		}
		request := &ua.FindServersOnNetworkRequest{}
		if _, err := ua.Decode(body, request); err != nil {
			s.t.Errorf("FindServersOnNetwork: %v", err)
		}
		response := &ua.FindServersOnNetworkResponse{ResponseHeader: responseHeader()}
		for _, r := range s.network {
			if r.RecordID >= request.StartingRecordID && len(response.Servers) < int(request.MaxRecordsToReturn) {
				response.Servers = append(response.Servers, r)
			}
		}
		return encode(s.t, response)
	}
	fault := responseHeader()
	fault.ServiceResult = ua.StatusBadServiceUnsupported
	return encode(s.t, &ua.ServiceFault{ResponseHeader: fault})
}
