package proxy

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
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
	var frames mem.BufferSlice
	if err := client.RecvMsg(&frames); err != nil {
		if errors.Is(err, io.EOF) {
			return status.Errorf(codes.Internal, "kubecri: %s came without a request", method)
		}
		return err
	}
	defer frames.Free()
	request := frames.MaterializeToBuffer(mem.DefaultBufferPool())
	defer request.Free()

	var got *answer
	defer func() {
		if got != nil {
			got.frames.Free()
			got.response.Free()
		}
	}()
	refusal := f(ctx, request.ReadOnlyData(), func(extra []byte) ([]byte, error) {
		if got != nil {
			return nil, status.Errorf(codes.Internal, "kubecri: %s forwarded twice", method)
		}
		message := append(frames[:len(frames):len(frames)], mem.SliceBuffer(extra))
		got = p.ask(ctx, method, message)
		return got.response.ReadOnlyData(), got.err
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

// answer is all that a unary call brought back.
type answer struct {
	header, trailer metadata.MD
	frames          mem.BufferSlice
	response        mem.Buffer // frames in one piece
	err             error
}

var unary = &grpc.StreamDesc{}

// ask makes a unary call and keeps the answer, for its frames to be freed.
func (p *Proxy) ask(ctx context.Context, method string, message mem.BufferSlice) *answer {
	a := &answer{response: mem.SliceBuffer(nil)}
	runtime, err := p.open(ctx, unary, method)
	if err != nil {
		a.err = err
		return a
	}
	// io.EOF: the call has ended already, and RecvMsg knows how.
	if err := runtime.SendMsg(&message); err != nil && !errors.Is(err, io.EOF) {
		a.err = err
		return a
	}
	a.err = runtime.RecvMsg(&a.frames) // of a unary call: waits for the status too
	a.header, _ = runtime.Header()
	a.trailer = runtime.Trailer()
	if a.err == nil {
		a.response = a.frames.MaterializeToBuffer(mem.DefaultBufferPool())
	}
	return a
}

// relay gives the answer to the client.
func (a *answer) relay(client grpc.ServerStream) error {
	client.SetTrailer(a.trailer)
	if a.header != nil {
		if err := client.SendHeader(a.header); err != nil {
			return err
		}
	}
	if a.err != nil {
		return a.err
	}
	return client.SendMsg(&a.frames)
}
