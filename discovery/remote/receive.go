package remote

import (
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"

	pb "github.com/kubeslot/kubeslot/types/discovery/v0"
)

// warningsField is the number of DiscoverResponse.warnings.
const warningsField protowire.Number = 1001

// list is an encoded list. release is to be called once it is no longer held.
type list struct {
	raw
	release func()
}

// received is what a stream has sent.
type received struct {
	// newest has the newest list that was not taken yet; it is closed when the stream has ended.
	newest chan list
	err    error // why the stream has ended; to be read when newest is closed
}

// receive reads the stream until it ends, as fast as it comes. A list is all that there is, so the
// newest replaces one that was not taken. Warnings are passed on at once: a list that is replaced
// may have had them.
func receive(conn *connection, stream grpc.ServerStreamingClient[pb.DiscoverResponse], warnings *warnings) *received {
	r := &received{newest: make(chan list, 1)}
	go func() {
		defer close(r.newest)
		for {
			var response raw
			if r.err = stream.RecvMsg(&response); r.err != nil {
				return
			}
			next := list{response, conn.meter.Load().complete()}
			warnings.passAll(response)
			select {
			case older := <-r.newest:
				older.release()
			default:
			}
			r.newest <- next // which has room: nobody else sends
		}
	}()
	return r
}

// discard waits until the stream has ended.
func (r *received) discard() {
	for list := range r.newest {
		list.release()
	}
}

// warnings passes on those that are new.
type warnings struct {
	warn   func(string) // may be nil
	passed []string
}

// passAll passes on the warnings of a response. One that is malformed is reported when it is taken.
func (w *warnings) passAll(response raw) {
	_ = eachField(response, func(number protowire.Number, value []byte) error {
		if number == warningsField {
			w.pass(value)
		}
		return nil
	})
}

func (w *warnings) pass(message []byte) {
	if w.warn == nil || len(message) == 0 || len(w.passed) == maxWarnings {
		return
	}
	text := shorten(string(message[:min(len(message), maxWarningBytes+1)]))
	if !slices.Contains(w.passed, text) {
		w.passed = append(w.passed, text)
		w.warn(text)
	}
}
