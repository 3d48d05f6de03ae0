package tracing

import (
	"context"
	"strings"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/metadata"
)

// work is what a call does with a Tracer.
func work(ctx context.Context, t *Tracer) {
	ctx, call := t.Call(ctx, "CreateContainer")
	call.Pod("ns", "p", "u", "c")
	_, step := t.Start(ctx, "Claim")
	if step.Recorded() {
		step.Slots([]string{"a-0"})
	}
	step.End(nil)
	call.End(nil)
}

// Whoever asks for no tracing pays nothing for it.
func TestNoTracerCostsNothing(t *testing.T) {
	ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"))
	if n := testing.AllocsPerRun(100, func() { work(ctx, nil) }); n != 0 {
		t.Errorf("%v allocations a call", n)
	}
	var none *Tracer
	none.Shutdown(ctx)
	none.Began(ctx, "x", time.Now()).End(nil)
}

func BenchmarkCall(b *testing.B) {
	provider := func(perMillion int32) *Tracer {
		t := newTracer(sdktrace.NewTracerProvider(sdktrace.WithBatcher(tracetest.NewNoopExporter()),
			sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(float64(perMillion)/1e6)))))
		b.Cleanup(func() { t.Shutdown(context.Background()) })
		return t
	}
	for name, tracer := range map[string]*Tracer{"off": nil, "on, not sampled": provider(0), "sampled": provider(1_000_000)} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				work(b.Context(), tracer)
			}
		})
	}
}

// What is recorded of a call whose caller has a trace is the caller's to say; of
// others it is the rate's.
func TestWhoSamples(t *testing.T) {
	parent := func(flags string) context.Context {
		return metadata.NewIncomingContext(t.Context(), metadata.Pairs("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-"+flags))
	}
	for _, test := range []struct {
		name     string
		ctx      context.Context
		rate     int32
		recorded bool
	}{
		{"sampled by the caller", parent("01"), 0, true},
		{"not sampled by the caller", parent("00"), 1_000_000, false},
		{"no caller", t.Context(), 0, false},
		{"no caller, all", t.Context(), 1_000_000, true},
		{"not a trace context", metadata.NewIncomingContext(t.Context(), metadata.Pairs("traceparent", "garbage")), 0, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			tracer, err := New(t.Context(), Config{Endpoint: "localhost:1", SamplingRatePerMillion: test.rate, Node: "node-a"}) // nobody listens
			if err != nil {
				t.Fatal(err)
			}
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			defer tracer.Shutdown(ended)
			ctx, call := tracer.Call(test.ctx, "CreateContainer")
			_, step := tracer.Start(ctx, "Claim")
			if call.Recorded() != test.recorded || step.Recorded() != test.recorded {
				t.Errorf("the call is recorded: %t, its step: %t, want %t", call.Recorded(), step.Recorded(), test.recorded)
			}
			if parent := trace.SpanContextFromContext(ctx); strings.HasPrefix(test.name, "sampled") && parent.TraceID().String() != "0af7651916cd43dd8448eb211c80319c" {
				t.Errorf("the call is of trace %s, not the caller's", parent.TraceID())
			}
		})
	}
}

func TestValidate(t *testing.T) {
	for _, test := range []struct {
		config Config
		says   string
	}{
		{Config{Endpoint: "localhost:4317", SamplingRatePerMillion: 1_000_000}, ""},
		{Config{Endpoint: "localhost"}, `"localhost"`},
		{Config{Endpoint: ":4317"}, "host:port"},
		{Config{Endpoint: "a:1", SamplingRatePerMillion: -1}, "-1"},
	} {
		err := test.config.Validate()
		if (err != nil) != (test.says != "") || err != nil && !strings.Contains(err.Error(), test.says) {
			t.Errorf("%+v: %v, want an error that says %q", test.config, err, test.says)
		}
		if _, newErr := New(t.Context(), test.config); (newErr != nil) != (err != nil) {
			t.Errorf("New(%+v): %v", test.config, newErr)
		}
	}
}
