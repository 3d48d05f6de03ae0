package remote

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubeslot/kubeslot/discovery"
	"github.com/kubeslot/kubeslot/discovery/debugecho"
)

// hostile is a worker that was taken over: it reads a question, sends this, and ends or falls silent.
type hostile struct {
	sends string
	ends  bool
}

func (h hostile) Connect(ctx context.Context, _ net.Conn) (net.Conn, error) {
	ours, theirs := net.Pipe()
	go func() {
		defer theirs.Close()
		if _, err := (&pipe{theirs, ctx, newBounds()}).next(asked); err != nil {
			return
		}
		if _, err := theirs.Write([]byte(h.sends)); err == nil && !h.ends {
			<-ctx.Done()
		}
	}()
	return ours, nil
}

// ask has the worker run a handler, until it or the time is over.
func (h hostile) ask(t *testing.T, warn func(string)) error {
	t.Helper()
	s := newServer(t, func(c *Config) { c.Worker = h })
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	err := s.InWorker(&debugecho.Handler{}).Discover(ctx, discovery.Request{Warn: warn}, func(result discovery.Result) {
		if len(result.Devices) > 0 {
			t.Errorf("reported %d devices", len(result.Devices))
		}
	})
	if len(s.bounds.large) > 0 || !s.bounds.decoding.TryAcquire(decodeBytes) {
		t.Errorf("after the end %d large lists are held, or memory for decoding", len(s.bounds.large))
	}
	return err
}

// Nothing that a worker sends takes more than its bounds, or ends kubecri.
func TestWhatAWorkerMaySend(t *testing.T) {
	const open = "\x01\x00\x00\x00\x00"
	list := func(sent string, ends bool) hostile { return hostile{open + "\x02" + sent, ends} }
	end := func(sent string) hostile { return hostile{open + "\x03" + sent, false} }
	for name, tc := range map[string]struct {
		worker hostile
		want   string
	}{
		"an end":                 {hostile{"", true}, "the discovery worker does not run: it has closed"},
		"nothing":                {hostile{"", false}, "the discovery worker does not answer"},
		"a part of a frame":      {hostile{"\x01\x00", true}, "unexpected EOF"},
		"a list too early":       {hostile{"\x02\x00\x00\x00\x00", false}, "a message of kind 2, want 1"},
		"what is no kind":        {hostile{open + "\xff\x00\x00\x00\x00", false}, "a message of kind 255, want 2"},
		"4 GiB":                  {list("\xff\xff\xff\xff", false), "a message of 4294967295 bytes, of 16777216"},
		"16 MiB and a byte":      {list("\x01\x00\x00\x01", false), "a message of 16777217 bytes, of 16777216"},
		"a list without an end":  {list("\x00\x10\x00\x00xx", false), "a message of 1048576 bytes: "},
		"a list that breaks off": {list("\x00\x10\x00\x00xx", true), "a message of 1048576 bytes: unexpected EOF"},
		"what is no list":        {list("\x00\x00\x00\x03\xff\xff\xff", false), "is not a DiscoverResponse"},
		"a part of a device":     {list("\x00\x00\x00\x02\x0a\x7f", false), "is not a DiscoverResponse"},
		"an end of no code":      {end("\x00\x00\x00\x00"), "a message of kind 3, want 2"},
		"an end of no error":     {end("\x00\x00\x00\x01\x00"), "the handler ended the stream"},
		"an error of no code":    {end("\x00\x00\x00\x03\xeehi"), "hi"},
		"an error of no text":    {end("\x00\x00\x00\x02\x0e\xff"), "?"},
		"wrong details":          {end("\x00\x00\x00\x03\x03no"), "no"},
		"an early end":           {hostile{"\x03\x00\x00\x00\x03\x0cno", false}, "no"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				err := tc.worker.ask(t, nil)
				if err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("Discover() = %v, want %q", err, tc.want)
				}
				if took := time.Since(began); took > time.Minute {
					t.Errorf("took %v", took)
				}
				if is := errors.Is(err, discovery.ErrInvalid); is != (name == "wrong details") {
					t.Errorf("%v is an ErrInvalid: %t", err, is)
				}
			})
		})
	}
}

// What reads the messages of a worker runs beside the Discover, whose panics the agent takes.
func TestAPanicForAMessageOfAWorker(t *testing.T) {
	worker := hostile{"\x01\x00\x00\x00\x00" + "\x02\x00\x00\x00\x04\xca\x3e\x01x", false} // a warning
	err := worker.ask(t, func(string) { panic("a fault of kubecri's") })
	if err == nil || !strings.Contains(err.Error(), "panic: a fault of kubecri's") {
		t.Errorf("Discover() = %v, want the panic", err)
	}
}

// A flood of empty messages is read at a bounded rate.
func TestAFloodOfMessagesOfAWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		defer there.Close()
		go func() {
			for err := error(nil); err == nil; {
				err = writeFrame(there, listed)
			}
		}()
		p, began := &pipe{here, t.Context(), newBounds()}, time.Now()
		defer here.Close()
		const n = 3 * readBytes / frameCost
		for range n {
			if _, err := p.next(listed); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took < 1900*time.Millisecond {
			t.Errorf("read %d messages in %v", n, took)
		}
	})
}
