package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/status"
	"k8s.io/klog/v2"

	"github.com/kubeslot/kubeslot/discovery"
	pb "github.com/kubeslot/kubeslot/types/discovery/v0"
)

const (
	// bytesPerSecond and burstBytes bound what a handler that never stops sending may
	// cost. A list that is reported costs at least minMessageBytes: 64 small ones a second,
	// 1024 at once.
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
	if request.Secret && e.address.network != "unix" && !e.address.tls() {
		return discovery.ErrSecretsNeedTLS
	}
	closed, err := e.server.bounds.open(e.name)
	if err != nil {
		return err
	}
	defer closed()
	shared, reshared := e.sharing()
	conn, err := dial(e.address, request.CABundle, e.server.connectTimeout, e.server.bounds)
	if err != nil {
		return err
	}
	defer conn.Close()
	stream, err := pb.NewDiscoveryHandlerClient(conn.ClientConn).Discover(ctx, encode(request),
		grpc.ForceCodecV2(codec{}), grpc.MaxCallRecvMsgSize(maxMessageBytes),
		experimental.AcceptCompressors(encoding.Identity)) // a list must not be longer than it arrives
	if err != nil {
		e.unreachable()
		return conn.explain(err)
	}
	defer e.connected()()
	received := receive(conn, stream, &warnings{warn: request.Warn})
	defer received.discard()
	defer cancel()
	silence := time.NewTimer(e.server.config.SilentAfter)
	defer silence.Stop()
	limit := rate.NewLimiter(bytesPerSecond, burstBytes)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-reshared:
			return fmt.Errorf("the handler registered again, now with shared: %t", !shared)
		case <-silence.C:
			klog.FromContext(ctx).V(2).Info("The discovery handler says nothing: it sees no devices", "endpoint", e.address.text)
			report(discovery.Result{Shared: shared})
		case list, open := <-received.newest:
			if !open {
				return explain(received.err)
			}
			silence.Stop()
			err := e.server.bounds.take(ctx, list,
				func(response *pb.DiscoverResponse) { report(decode(response, shared)) })
			if err != nil {
				return err
			}
			if err := limit.WaitN(ctx, max(len(list.raw), minMessageBytes)); err != nil {
				return err
			}
		}
	}
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

// shorten makes text from another process fit for an Event.
func shorten(text string) string {
	if len(text) > maxWarningBytes {
		text = text[:maxWarningBytes] + "…"
	}
	return strings.ToValidUTF8(text, "?")
}
