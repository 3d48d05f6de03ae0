package remote

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/kubeslot/kubeslot/types/discovery/v0"
)

// Runner is what a worker does: it runs handlers of its own, and speaks gRPC to those that
// registered, whose lists it passes on. Make one with NewRunner. It is safe for concurrent use.
type Runner struct {
	handlers map[string]pb.DiscoveryHandlerServer
	bounds   *bounds
}

// NewRunner returns a Runner that has these handlers, by name.
func NewRunner(handlers map[string]pb.DiscoveryHandlerServer) *Runner {
	return &Runner{handlers, newBounds()}
}

// Serve answers the question that comes on conn until either end closes that, or ctx ends. peer is
// nil, or a connection to a handler that registered. Serve closes both.
func (r *Runner) Serve(ctx context.Context, conn, peer net.Conn) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	context.AfterFunc(ctx, func() {
		conn.Close()
		if peer != nil {
			peer.Close()
		}
	})
	err := r.serve(ctx, cancel, conn, peer)
	if s := status.Convert(err); ctx.Err() == nil {
		_ = writeFrame(conn, ended, []byte{byte(s.Code())}, []byte(shorten(s.Message())))
	}
}

func (r *Runner) serve(ctx context.Context, cancel func(), conn, peer net.Conn) error {
	var q question
	request, err := (&pipe{conn, ctx, r.bounds}).next(asked)
	if err == nil {
		err = json.Unmarshal(request.encoded, &q)
		request.release()
	}
	if err != nil {
		return err
	}
	go func() {
		_, _ = conn.Read(make([]byte, 1)) // the Server sends nothing more
		cancel()
	}()
	return r.answer(q, peer, &answerStream{ctx: ctx, conn: conn})
}

func (r *Runner) answer(q question, peer net.Conn, answers *answerStream) error {
	request := encode(q.Details, q.Properties)
	if q.Handler == "" && peer != nil {
		return r.relay(answers, q.Target, peer, request)
	}
	handler := r.handlers[q.Handler]
	if handler == nil {
		return status.Errorf(codes.Unimplemented, "the discovery worker has no handler %q", q.Handler)
	}
	if err := writeFrame(answers.conn, opened); err != nil {
		return err
	}
	return handler.Discover(request, answers)
}

// relay passes on what the handler at peer sends.
func (r *Runner) relay(answers *answerStream, to target, peer net.Conn, request *pb.DiscoverRequest) error {
	conn, err := dial(to, peer, r.bounds)
	if err != nil {
		return err
	}
	defer conn.Close()
	lists, err := pb.NewDiscoveryHandlerClient(conn.ClientConn).Discover(answers.ctx, request,
		grpc.ForceCodecV2(codec{}), grpc.MaxCallRecvMsgSize(maxMessageBytes),
		experimental.AcceptCompressors(encoding.Identity)) // a list must not be longer than it arrives
	if err == nil {
		err = writeFrame(answers.conn, opened)
	}
	for err == nil {
		var list mem.BufferSlice
		if err = lists.RecvMsg(&list); err == nil {
			release := conn.meter.Load().complete()
			err = answers.pass(list)
			release()
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// answerStream is the stream on which a handler of the worker's reports.
type answerStream struct {
	grpc.ServerStream // has nothing: handlers need Context and Send alone
	ctx               context.Context
	conn              net.Conn
}

// Context implements grpc.ServerStream.
func (a *answerStream) Context() context.Context { return a.ctx }

// Send implements grpc.ServerStreamingServer.
func (a *answerStream) Send(response *pb.DiscoverResponse) error {
	content, err := proto.Marshal(response)
	if err != nil {
		return err
	}
	return writeFrame(a.conn, listed, content)
}

// pass passes the list on in the pieces in which it came: a copy would take as much once more.
func (a *answerStream) pass(list mem.BufferSlice) error {
	defer list.Free()
	pieces := make([][]byte, len(list))
	for i, piece := range list {
		pieces[i] = piece.ReadOnlyData()
	}
	return writeFrame(a.conn, listed, pieces...)
}
