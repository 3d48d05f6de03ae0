package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/discovery"
	pb "github.com/kubeslot/kubeslot/types/discovery/v0"
)

const (
	// bytesPerSecond and burstBytes bound what a handler that never stops sending may
	// cost. A message costs at least minMessageBytes: 64 small ones a second, 1024 at
	// once.
	bytesPerSecond  = 4 << 20
	burstBytes      = 64 << 20
	minMessageBytes = 64 << 10

	// maxWarnings is how many different warnings of a stream are passed on, and
	// maxWarningBytes how much of each, and of an error.
	maxWarnings     = 16
	maxWarningBytes = 1 << 10
)

// Discover implements discovery.Handler: it asks the endpoint, on a connection of its
// own, so that one Configuration's trouble is not another's. A stream that stays open
// without a message counts as a report of no devices after Config.SilentAfter.
func (e *endpoint) Discover(ctx context.Context, request discovery.Request, report func(discovery.Result)) error {
	err := e.discover(ctx, request, report)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	e.server.forget(klog.FromContext(ctx), e)
	return fmt.Errorf("endpoint %s: %w", e.address.text, err)
}

func (e *endpoint) discover(ctx context.Context, request discovery.Request, report func(discovery.Result)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	shared, reshared := e.sharing()
	conn, err := dial(e.address, e.server.connectTimeout)
	if err != nil {
		return err
	}
	defer conn.Close()
	codec := &boundedCodec{}
	stream, err := pb.NewDiscoveryHandlerClient(conn.ClientConn).Discover(ctx, encode(request),
		grpc.ForceCodecV2(codec), grpc.MaxCallRecvMsgSize(maxMessageBytes))
	if err != nil {
		e.unreachable()
		return conn.explain(err)
	}
	defer e.connected()()
	messages := receive(ctx, stream, codec)
	silence := time.NewTimer(e.server.config.SilentAfter)
	defer silence.Stop()
	warnings := warnings{warn: request.Warn}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-reshared:
			return fmt.Errorf("the handler registered again, now with shared: %t", !shared)
		case <-silence.C:
			klog.FromContext(ctx).V(2).Info("The discovery handler says nothing: it sees no devices", "endpoint", e.address.text)
			report(discovery.Result{Shared: shared})
		case message := <-messages:
			if message.err != nil {
				return explain(message.err)
			}
			silence.Stop()
			warnings.pass(message.response.GetWarnings())
			report(decode(message.response, shared))
		}
	}
}

// received is what a stream had last; err ends it.
type received struct {
	response *pb.DiscoverResponse
	err      error
}

// receive returns the stream's messages, until ctx ends.
func receive(ctx context.Context, stream grpc.ServerStreamingClient[pb.DiscoverResponse], codec *boundedCodec) <-chan received {
	messages := make(chan received)
	limit := rate.NewLimiter(bytesPerSecond, burstBytes)
	go func() {
		for {
			response, err := stream.Recv()
			select {
			case messages <- received{response, err}:
			case <-ctx.Done():
				return
			}
			if err != nil || limit.WaitN(ctx, max(codec.size, minMessageBytes)) != nil {
				return
			}
		}
	}()
	return messages
}

// explain is the error of a stream that had been opened. InvalidArgument is what
// handlers answer to details that they cannot work with.
func explain(err error) error {
	if errors.Is(err, io.EOF) {
		return errors.New("the handler ended the stream, though it should go on")
	}
	s := status.Convert(err)
	message := shorten(s.Message())
	if s.Code() == codes.InvalidArgument {
		return discovery.Invalidf("the handler refuses: %s", message)
	}
	return fmt.Errorf("the stream broke: %s: %s", s.Code(), message)
}

// warnings passes on those that are new.
type warnings struct {
	warn func(string) // may be nil
	told []string
}

func (w *warnings) pass(messages []string) {
	for _, m := range messages {
		m = shorten(m)
		if w.warn == nil || m == "" || len(w.told) == maxWarnings || slices.Contains(w.told, m) {
			continue
		}
		w.told = append(w.told, m)
		w.warn(m)
	}
}

// shorten makes text from another process fit for an Event.
func shorten(text string) string {
	if len(text) > maxWarningBytes {
		text = text[:maxWarningBytes] + "…"
	}
	return strings.ToValidUTF8(text, "?")
}
