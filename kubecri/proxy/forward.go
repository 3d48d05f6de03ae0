package proxy

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// streaming describes every call: whether a method streams is not known here,
// and a unary call is a stream of one message.
var streaming = &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}

// handle serves one call of any method.
func (p *Proxy) handle(_ any, client grpc.ServerStream) error {
	method, ok := grpc.MethodFromServerStream(client)
	if !ok {
		return status.Error(codes.Internal, "kubecri: the call names no method")
	}
	if p.config.Called == nil {
		return p.serve(client, method)
	}
	start := time.Now()
	err := p.serve(client, method)
	p.config.Called(method, status.Code(err), time.Since(start))
	return err
}

func (p *Proxy) serve(client grpc.ServerStream, method string) error {
	// Ends the runtime's side however this side ends.
	ctx, cancel := context.WithCancel(outgoing(client.Context()))
	defer cancel()
	if intercept := p.config.Interceptors[method]; intercept != nil {
		return p.intercept(ctx, client, method, intercept)
	}
	if unaryMethods[method] {
		return p.unary(ctx, client, method)
	}
	if method != runtimeapi.RuntimeService_GetContainerEvents_FullMethodName {
		return p.forward(ctx, client, method)
	}
	// It lasts as long as the client wants: a drain would wait for it until its deadline.
	defer context.AfterFunc(p.draining, cancel)()
	err := p.forward(ctx, client, method)
	if p.draining.Err() != nil && client.Context().Err() == nil && status.Code(err) == codes.Canceled {
		return status.Error(codes.Unavailable, "kubecri is stopping: call again")
	}
	return err
}

// outgoing carries the caller's metadata to the runtime. What grpc says for each
// hop itself is left out; it drops the other reserved keys by itself.
func outgoing(ctx context.Context) context.Context {
	md, _ := metadata.FromIncomingContext(ctx) // a copy
	delete(md, "grpc-accept-encoding")
	return metadata.NewOutgoingContext(ctx, md)
}

// forward pumps messages both ways until the runtime ends the call.
func (p *Proxy) forward(ctx context.Context, client grpc.ServerStream, method string) error {
	runtime, err := p.open(ctx, streaming, method)
	if err != nil {
		return err
	}
	// Returns when the client half-closes, or when this handler returned: both
	// streams' contexts are done then.
	go func() {
		if err := pump(client, runtime); err == nil {
			_ = runtime.CloseSend()
		}
	}()
	header, err := runtime.Header()
	if err == nil && header != nil {
		err = client.SendHeader(header)
	}
	if err == nil {
		err = pump(runtime, client)
	}
	client.SetTrailer(runtime.Trailer())
	return err
}

// open starts the call to the runtime.
func (p *Proxy) open(ctx context.Context, desc *grpc.StreamDesc, method string) (grpc.ClientStream, error) {
	return p.peer(method).NewStream(ctx, desc, method,
		grpc.ForceCodecV2(rawCodec{}),
		grpc.MaxCallRecvMsgSize(MaxMessageBytes),
		grpc.MaxCallSendMsgSize(MaxMessageBytes))
}

// peer is who serves the method.
func (p *Proxy) peer(method string) grpc.ClientConnInterface {
	if p.config.Images != nil && ofImageService(method) {
		return p.config.Images
	}
	return p.config.Runtime
}

// ofImageService reports whether a full method name is /runtime.<version>.ImageService/<method>.
func ofImageService(method string) bool {
	service, _, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	return strings.HasPrefix(service, "runtime.") && strings.HasSuffix(service, ".ImageService")
}

type receiver interface{ RecvMsg(any) error }
type sender interface{ SendMsg(any) error }

// pump copies messages until from ends, which is nil for a proper end. A send
// that fails with io.EOF means that to has ended: its reader gets the reason.
func pump(from receiver, to sender) error {
	for {
		var m mem.BufferSlice
		if err := from.RecvMsg(&m); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		err := to.SendMsg(&m)
		m.Free()
		if err != nil {
			return err
		}
	}
}
