package proxy

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
)

// Interceptor acts on one unary call. It either refuses the call by returning an
// error (a grpc status, or it becomes Unknown) without calling forward, or calls
// forward exactly once: from then on the client gets the runtime's answer, and
// what the Interceptor returns is of no account. The client gets the answer when
// the Interceptor has returned, so that whatever it records of the call is
// recorded before the client's next step.
//
// request and the response are valid until it returns and must not be changed.
// ctx ends with the call.
type Interceptor func(ctx context.Context, request []byte, forward Forward) error

// Forward sends the request, followed by extra, to the runtime and returns its
// response or its status as an error.
type Forward func(extra []byte) (response []byte, err error)

// intercept serves one unary call through an Interceptor.
func (p *Proxy) intercept(ctx context.Context, client grpc.ServerStream, method string, f Interceptor) error {
	frames, err := request(client, method)
	if err != nil {
		return err
	}
	defer frames.Free()
	whole := frames.MaterializeToBuffer(mem.DefaultBufferPool())
	defer whole.Free()

	var got *answer
	var response mem.Buffer
	defer func() {
		if got != nil {
			got.frames.Free()
			response.Free()
		}
	}()
	refusal := f(ctx, whole.ReadOnlyData(), func(extra []byte) ([]byte, error) {
		if got != nil {
			return nil, status.Errorf(codes.Internal, "kubecri: %s forwarded twice", method)
		}
		message := append(frames[:len(frames):len(frames)], mem.SliceBuffer(extra))
		got = p.ask(ctx, method, message)
		response = got.frames.MaterializeToBuffer(mem.DefaultBufferPool())
		return response.ReadOnlyData(), got.err
	})
	switch {
	case got != nil:
		return got.relay(client)
	case refusal != nil:
		return refusal
	default:
		return status.Errorf(codes.Internal, "kubecri: %s was neither forwarded nor refused", method)
	}
}
