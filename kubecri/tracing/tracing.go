// Package tracing makes OpenTelemetry spans of what kubecri does. A span of a CRI
// call continues the caller's trace, which comes in gRPC metadata (W3C Trace
// Context); the metadata goes to the runtime as it came. Exporter, sampler and
// propagators are component-base's. Spans are of the calls that kubecri acts on, and NRI's
// come over ttrpc: otelgrpc would trace, and cost, each call that is passed on.
//
// A nil *Tracer makes none and costs nothing: no allocation, no clock.
package tracing

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	semconv "go.opentelemetry.io/otel/semconv/v1.39.0"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/metadata"
	"k8s.io/component-base/tracing"
	tracingapi "k8s.io/component-base/tracing/api/v1"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"
)

const scope = "github.com/kubeslot/kubeslot/kubecri"

// propagators are those of Kubernetes' components: W3C Trace Context and Baggage.
var propagators = tracing.Propagators()

// Config configures a Tracer.
type Config struct {
	// Endpoint is the OTLP collector's, host:port, without TLS as in Kubernetes'
	// TracingConfiguration. It need not be there.
	Endpoint string
	// SamplingRatePerMillion is how many of a million traces that begin here are
	// recorded, 0 to 1000000. A trace that the kubelet began is recorded as it says.
	SamplingRatePerMillion int32
	// Node is the resource's k8s.node.name.
	Node string
}

// Validate says what is wrong with the configuration.
func (c Config) Validate() error {
	var errs []error
	if host, port, err := net.SplitHostPort(c.Endpoint); err != nil || host == "" || port == "" {
		errs = append(errs, fmt.Errorf("endpoint %q: want host:port", c.Endpoint))
	}
	if c.SamplingRatePerMillion < 0 || c.SamplingRatePerMillion > 1_000_000 {
		errs = append(errs, fmt.Errorf("sampling rate %d: want 0 to 1000000", c.SamplingRatePerMillion))
	}
	return errors.Join(errs...)
}

// Tracer makes spans. Safe for concurrent use.
type Tracer struct {
	provider tracing.TracerProvider
	tracer   trace.Tracer
}

// New makes a Tracer, which sends spans in the background: while the collector
// cannot be reached, some 2000 are kept and the rest are dropped.
func New(ctx context.Context, c Config) (*Tracer, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	logger := klog.FromContext(ctx).WithName("tracing")
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { logger.V(2).Info("Spans are lost", "reason", err) }))
	provider, err := tracing.NewProvider(ctx,
		&tracingapi.TracingConfiguration{Endpoint: &c.Endpoint, SamplingRatePerMillion: &c.SamplingRatePerMillion}, nil,
		[]resource.Option{resource.WithAttributes(semconv.ServiceName("kubecri"), semconv.ServiceVersion(version.Get().GitVersion), semconv.K8SNodeName(c.Node))})
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	return newTracer(provider), nil
}

func newTracer(provider tracing.TracerProvider) *Tracer {
	return &Tracer{provider: provider, tracer: provider.Tracer(scope)}
}

// Shutdown sends what is left, until ctx is done.
func (t *Tracer) Shutdown(ctx context.Context) {
	if t != nil {
		_ = t.provider.Shutdown(ctx) // the error handler has been told
	}
}

// Call begins the span of a call that came over gRPC, a child of the caller's.
func (t *Tracer) Call(ctx context.Context, name string) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	came, _ := metadata.FromIncomingContext(ctx)
	carrier := propagation.MapCarrier{}
	for _, key := range propagators.Fields() {
		if values := came.Get(key); len(values) > 0 {
			carrier[key] = values[0]
		}
	}
	ctx = propagators.Extract(ctx, carrier)
	ctx, span := t.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindServer))
	return ctx, Span{span}
}

// Start begins a span, a child of the one in ctx.
func (t *Tracer) Start(ctx context.Context, name string) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	ctx, span := t.tracer.Start(ctx, name)
	return ctx, Span{span}
}

// Began makes a span of what began earlier, when it was not known yet whether it
// would be worth one.
func (t *Tracer) Began(ctx context.Context, name string, start time.Time) Span {
	if t == nil {
		return Span{}
	}
	_, span := t.tracer.Start(ctx, name, trace.WithTimestamp(start))
	return Span{span}
}

// Span is one; the zero Span is none.
type Span struct{ span trace.Span }

// Recorded reports whether anybody will see it, for what costs something to tell.
func (s Span) Recorded() bool { return s.span != nil && s.span.IsRecording() }

// Pod says what the span concerns, in OpenTelemetry's words.
func (s Span) Pod(namespace, name, uid, container string) {
	if s.Recorded() {
		s.span.SetAttributes(semconv.K8SNamespaceName(namespace), semconv.K8SPodName(name), semconv.K8SPodUID(uid), semconv.K8SContainerName(container))
	}
}

// Slots says which slots it concerns.
func (s Span) Slots(names []string) {
	if !s.Recorded() {
		return
	}
	// StringSlice keeps the strings without the compiler's knowledge (it uses
	// reflect.Copy), so those of a caller may be on its stack. Copies made in a loop are not.
	kept := make([]string, len(names))
	for i, name := range names {
		kept[i] = strings.Clone(name)
	}
	s.span.SetAttributes(attribute.StringSlice("kubeslot.slots", kept))
}

// Instance says which Instance it concerns.
func (s Span) Instance(name string) {
	if s.Recorded() {
		s.span.SetAttributes(attribute.String("kubeslot.instance", name))
	}
}

// End ends it, with an error or nil.
func (s Span) End(err error) {
	if s.span == nil {
		return
	}
	if err != nil {
		s.span.RecordError(err)
		s.span.SetStatus(codes.Error, err.Error())
	}
	s.span.End()
}
