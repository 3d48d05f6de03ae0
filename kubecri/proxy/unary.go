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
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// unaryMethods are today's methods of one request and one response, which are nearly all
// calls. As any other call they could be pumped; but known to be unary they need
// no goroutine, the runtime gets its request and the end of it in one write, and
// the client headers, response and status in one.
var unaryMethods = func() map[string]bool {
	methods := map[string]bool{}
	for _, service := range []grpc.ServiceDesc{runtimeapi.RuntimeService_ServiceDesc, runtimeapi.ImageService_ServiceDesc} {
		for _, method := range service.Methods {
			methods["/"+service.ServiceName+"/"+method.MethodName] = true
		}
	}
	return methods
}()

var unaryDesc = &grpc.StreamDesc{}

// unary serves one call of such a method.
func (p *Proxy) unary(ctx context.Context, client grpc.ServerStream, method string) error {
	frames, err := request(client, method)
	if err != nil {
		return err
	}
	got := p.ask(ctx, method, frames)
	frames.Free()
	defer got.frames.Free()
	return got.relay(client)
}

// request receives the request, for the caller to free.
func request(client grpc.ServerStream, method string) (mem.BufferSlice, error) {
	var frames mem.BufferSlice
	err := client.RecvMsg(&frames)
	if errors.Is(err, io.EOF) {
		err = status.Errorf(codes.Internal, "kubecri: %s came without a request", method)
	}
	return frames, err
}

// answer is all that a unary call brought back.
type answer struct {
	header, trailer metadata.MD
	frames          mem.BufferSlice
	err             error
}

// ask makes a unary call and keeps the answer, for its frames to be freed.
func (p *Proxy) ask(ctx context.Context, method string, message mem.BufferSlice) *answer {
	a := &answer{}
	runtime, err := p.open(ctx, unaryDesc, method)
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
	return a
}

// relay gives the answer to the client.
func (a *answer) relay(client grpc.ServerStream) error {
	client.SetTrailer(a.trailer)
	if len(a.header) > 0 {
		if err := client.SetHeader(a.header); err != nil { // goes with what follows
			return err
		}
	}
	if a.err != nil {
		return a.err
	}
	return client.SendMsg(&a.frames)
}
