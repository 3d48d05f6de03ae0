package remote

import (
	"context"
	"fmt"
	"strings"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
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
// without a message counts as a report of no devices after silentAfter.
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
	p, err := e.ask(ctx, request)
	if err != nil {
		return err
	}
	defer e.connected()()
	p.ctx = klog.NewContext(ctx, klog.LoggerWithValues(klog.FromContext(ctx), "endpoint", e.address.text))
	return explain(p.follow(request.Warn, report, shared, reshared, time.After(e.server.silentAfter)))
}

// ask connects to the endpoint, and has the worker ask it: what the handler sends is first read
// there, and TLS ends there.
func (e *endpoint) ask(ctx context.Context, request discovery.Request) (*pipe, error) {
	to := target{Authority: e.address.authority(), TLS: e.address.tls(), CABundle: request.CABundle}
	if _, err := to.transport(); err != nil {
		return nil, err
	}
	connecting, cancel := context.WithTimeout(ctx, e.server.connectTimeout)
	defer cancel()
	peer, err := connect(connecting, e.address)
	if err != nil {
		e.unreachable()
		return nil, fmt.Errorf("cannot connect: %w", err)
	}
	context.AfterFunc(ctx, func() { peer.Close() })
	p, err := e.server.ask(ctx, peer, question{Target: to}, request)
	if s, ofHandler := status.FromError(err); err != nil && ofHandler {
		e.unreachable()
		return nil, fmt.Errorf("cannot connect: %s", s.Message())
	}
	return p, err
}

// follow reports what is sent until the stream ends, and returns why it ended. shared is what devices
// are where a response does not say it, until reshared is closed. When silence ends without a list,
// there are no devices.
func (p *pipe) follow(warn func(string), report func(discovery.Result), shared bool, reshared <-chan struct{},
	silence <-chan time.Time) error {
	received := receive(p, &warnings{warn: warn})
	defer received.discard()
	defer p.Close()
	limit := rate.NewLimiter(bytesPerSecond, burstBytes)
	for {
		select {
		case <-p.ctx.Done():
			return p.ctx.Err()
		case <-reshared:
			return fmt.Errorf("the handler registered again, now with shared: %t", !shared)
		case <-silence:
			klog.FromContext(p.ctx).V(2).Info("The discovery handler says nothing: it sees no devices")
			report(discovery.Result{Shared: shared})
		case list, open := <-received.newest:
			if !open {
				return received.err
			}
			silence = nil
			err := p.bounds.take(p.ctx, list,
				func(response *pb.DiscoverResponse) { report(decode(response, shared)) })
			if err != nil {
				return err
			}
			if err := limit.WaitN(p.ctx, max(len(list.encoded), minMessageBytes)); err != nil {
				return err
			}
		}
	}
}

// explain is the error of a stream that had been opened. InvalidArgument is what
// handlers answer to details that they cannot work with.
func explain(err error) error {
	s, ofHandler := status.FromError(err)
	switch {
	case !ofHandler:
		return err
	case s.Code() == codes.InvalidArgument:
		return discovery.Invalidf("the handler refuses: %s", s.Message())
	}
	return fmt.Errorf("the stream broke: %s: %s", s.Code(), s.Message())
}

// shorten makes text from another process fit for an Event.
func shorten(text string) string {
	if len(text) > maxWarningBytes {
		text = text[:maxWarningBytes] + "…"
	}
	return strings.ToValidUTF8(text, "?")
}
